use super::*;

const CROWDED: QueueKey = (SubjectKey([1; 16]), false);
const QUIET: QueueKey = (SubjectKey([2; 16]), false);

/// As many as may wait, all at one log.
fn crowd(line: &WaitQueue) -> Vec<QueuePosition<'_>> {
    let crowd: Vec<_> = std::iter::from_fn(|| line.join(CROWDED)).collect();
    assert_eq!(crowd.len(), MOST_WAITING);
    crowd
}

#[tokio::test]
async fn a_crowd_at_one_log_leaves_room_at_the_others() {
    let line = WaitQueue::default();
    let mut crowd = crowd(&line);
    let quiet = line.join(QUIET).expect("a shorter line");
    let youngest = crowd.pop().unwrap();
    assert!(youngest.wait().await.is_err(), "told at once");
    drop(youngest);
    assert!(line.join(CROWDED).is_none());
    quiet.wait().await.unwrap();
    drop(quiet);
    assert_eq!(line.waiting.load(Ordering::SeqCst), MOST_WAITING - 1);
    drop(crowd);
    assert_eq!(line.waiting.load(Ordering::SeqCst), 0);
    let queues = line.queues();
    assert!(queues.queues.is_empty() && queues.lengths.is_empty());
}

#[test]
fn many_crowds_give_way_to_a_single_one_and_not_to_each_other() {
    let line = WaitQueue::default();
    let key = |number: usize| (SubjectKey([u8::try_from(number).unwrap(); 16]), false);
    let crowds: Vec<_> = (0..MOST_WAITING).map(|number| line.join(key(number % 100)).unwrap()).collect();
    assert!(line.join(key(0)).is_none());
    assert!(line.join(key(200)).is_some());
    drop(crowds);
}

#[tokio::test]
async fn a_solved_challenge_waits_behind_no_unsolved_one() {
    let line = WaitQueue::default();
    let _crowd = crowd(&line);
    let (log, _) = CROWDED;
    assert!(!line.has_waiters((log, true)));
    let solved = line.join((log, true)).unwrap();
    solved.wait().await.unwrap();
    assert!(solved.is_first());
    line.wake(log);
    solved.wait().await.unwrap();
}
