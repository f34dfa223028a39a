use super::*;

const MOST: usize = 1024;
const CROWDED: usize = 1;
const QUIET: usize = 2;

/// As many as may wait, all at one key.
fn crowd(queue: &Arc<WaitQueue<usize>>) -> Vec<QueuePosition<usize>> {
    let crowd: Vec<_> = std::iter::from_fn(|| queue.join(CROWDED)).collect();
    assert_eq!(crowd.len(), MOST);
    crowd
}

#[tokio::test]
async fn a_crowd_at_one_key_leaves_room_at_the_others() {
    let queue = WaitQueue::new(MOST, MOST);
    let mut crowd = crowd(&queue);
    let quiet = queue.join(QUIET).expect("a shorter queue");
    let youngest = crowd.pop().unwrap();
    assert!(youngest.wait().await.is_err(), "told at once");
    drop(youngest);
    assert!(queue.join(CROWDED).is_none());
    quiet.wait().await.unwrap();
    drop(quiet);
    assert_eq!(queue.waiting.load(Ordering::SeqCst), MOST - 1);
    drop(crowd);
    assert_eq!(queue.waiting.load(Ordering::SeqCst), 0);
    assert!(queue.queues().is_empty());
}

#[test]
fn many_crowds_give_way_to_a_single_one_and_not_to_each_other() {
    let queue = WaitQueue::new(MOST, MOST);
    let crowds: Vec<_> = (0..MOST).map(|number| queue.join(number % 100).unwrap()).collect();
    assert!(queue.join(0).is_none());
    assert!(queue.join(200).is_some());
    drop(crowds);
}

#[tokio::test]
async fn who_waits_at_one_key_holds_up_nobody_at_another() {
    let queue = WaitQueue::new(MOST, MOST);
    let _crowd = crowd(&queue);
    assert!(!queue.has_waiters(&QUIET));
    let quiet = queue.join(QUIET).unwrap();
    quiet.wait().await.unwrap();
    assert!(quiet.is_first());
    queue.wake(&QUIET);
    quiet.wait().await.unwrap();
}

#[tokio::test]
async fn the_second_has_its_turn_after_the_first_and_nothing_is_left_behind() {
    let queue = WaitQueue::new(8, 8);
    let first = queue.join(1).unwrap().turn().await.unwrap();
    let second = tokio::spawn(queue.join(1).unwrap().turn());
    tokio::task::yield_now().await;
    assert!(!second.is_finished());
    drop(queue.join(2).unwrap().turn().await.unwrap());
    drop(first);
    drop(second.await.unwrap().unwrap());
    assert!(queue.queues().is_empty());
    assert_eq!(queue.waiting.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn no_more_than_so_many_wait_for_one_key_and_who_gives_up_makes_room() {
    let queue = WaitQueue::new(8, 3);
    let first = queue.join(1).unwrap().turn().await.unwrap();
    let wait = || tokio::spawn(queue.join(1).unwrap().turn());
    let (stays, gone) = (wait(), wait());
    tokio::task::yield_now().await;
    assert!(queue.join(1).is_none(), "every position is taken");
    gone.abort();
    assert!(gone.await.unwrap_err().is_cancelled());
    let new = wait();
    drop(first);
    for served in [stays, new] {
        assert!(served.await.unwrap().is_ok());
    }
    assert!(queue.queues().is_empty());
}

#[tokio::test]
async fn whoever_has_a_turn_is_not_counted_as_waiting_and_cannot_be_displaced() {
    let queue = WaitQueue::new(1, 8);
    let turns = [queue.join(1).unwrap().turn().await.unwrap(), queue.join(2).unwrap().turn().await.unwrap()];
    let waits = queue.join(1).unwrap();
    assert!(queue.join(2).is_none());
    let new = queue.join(3);
    assert!(new.is_some(), "a free key needs nobody to wait");
    assert!(waits.wait().await.is_err());
    drop((turns, waits, new));
    assert!(queue.queues().is_empty());
    assert_eq!(queue.waiting.load(Ordering::SeqCst), 0);
}
