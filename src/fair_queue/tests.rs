use super::*;

fn owner(number: u8) -> QueueOwner {
    QueueOwner::of(&[number + 1])
}

/// A queue of jobs that are named by their ids.
struct Rig {
    queue: FairQueue<JobId>,
    last: JobId,
}

impl Rig {
    fn new(capacity: usize) -> Self {
        Self { queue: FairQueue::new(capacity), last: 0 }
    }

    /// Its id, and what it displaced; or nothing.
    fn push(&mut self, number: u8) -> Option<(JobId, Option<JobId>)> {
        self.push_from(number, None)
    }

    fn push_from(&mut self, number: u8, source: Option<QueueSource>) -> Option<(JobId, Option<JobId>)> {
        self.last += 1;
        let (id, room) = (self.last, self.queue.has_room(owner(number)));
        let pushed = self.queue.push(owner(number), id, source, id).ok().map(|displaced| (id, displaced));
        assert_eq!(pushed.is_some(), room, "a look and a push say the same");
        pushed
    }

    fn take(&mut self) -> Option<JobId> {
        self.queue.take().map(|taken| taken.job)
    }

    /// Serves the owner once.
    fn serve(&mut self, number: u8) {
        let (id, _) = self.push(number).unwrap();
        assert_eq!(self.take(), Some(id));
    }
}

#[test]
fn one_owner_is_served_in_the_order_of_its_jobs() {
    let mut rig = Rig::new(10);
    let pushed: Vec<_> = (0..5).map(|_| rig.push(0).unwrap().0).collect();
    let taken: Vec<_> = std::iter::from_fn(|| rig.take()).collect();
    assert_eq!(taken, pushed);
    assert_eq!(rig.queue.len(), 0);
}

#[test]
fn whoever_was_served_least_recently_goes_first() {
    let mut rig = Rig::new(10);
    for number in [0, 1, 2] {
        rig.serve(number);
    }
    rig.serve(0);
    let [zero, two, one, new] = [0, 2, 1, 3].map(|number| rig.push(number).unwrap().0);
    let taken: Vec<_> = std::iter::from_fn(|| rig.take()).collect();
    assert_eq!(taken, [new, one, two, zero]);
}

#[test]
fn a_quiet_owner_does_not_wait_a_round_of_the_busy() {
    let mut rig = Rig::new(600);
    for number in 0..200 {
        rig.push(number).unwrap();
        rig.push(number).unwrap();
    }
    for _ in 0..200 {
        rig.take().unwrap();
    }
    let (quiet, _) = rig.push(201).unwrap();
    assert_eq!(rig.take(), Some(quiet));
}

#[test]
fn in_a_full_queue_the_youngest_of_those_with_most_gives_way() {
    let mut rig = Rig::new(4);
    rig.push(0).unwrap();
    rig.push(1).unwrap();
    rig.push(0).unwrap();
    let (youngest, _) = rig.push(0).unwrap();
    assert_eq!(rig.push(0), None, "not to the same owner");
    let (_, displaced) = rig.push(2).unwrap();
    assert_eq!(displaced, Some(youngest));
    assert_eq!(rig.queue.len(), 4);
    assert_eq!(rig.push(0), None);
}

#[test]
fn among_equals_the_one_served_last_gives_way_and_nobody_to_a_like_one() {
    let mut rig = Rig::new(2);
    rig.serve(0);
    rig.serve(1);
    rig.push(0).unwrap();
    let (one, _) = rig.push(1).unwrap();
    let (_, displaced) = rig.push(2).unwrap();
    assert_eq!(displaced, Some(one));
    let (_, displaced) = rig.push(3).unwrap();
    assert!(displaced.is_some(), "0 has been served");
    assert_eq!(rig.push(4), None, "all of them are new: no churn");
    assert_eq!(rig.push(0), None);
}

#[test]
fn a_crowd_of_new_owners_is_new_only_once() {
    let mut rig = Rig::new(2);
    rig.serve(0);
    for number in 1..100 {
        let _ = rig.push(number);
    }
    rig.take().unwrap();
    rig.take().unwrap();
    for number in 1..100 {
        let _ = rig.push(number);
    }
    let (quiet, displaced) = rig.push(0).unwrap();
    assert!(displaced.is_some(), "it was served before they were turned away");
    assert_eq!(rig.take(), Some(quiet));
}

#[test]
fn a_source_has_one_job_running_and_passes_its_turn_to_others() {
    let mut rig = Rig::new(10);
    let [first, second] = [(), ()].map(|()| rig.push_from(0, Some(7)).unwrap().0);
    let (other, _) = rig.push_from(0, Some(8)).unwrap();
    assert_eq!(rig.take(), Some(first));
    assert_eq!(rig.take(), Some(other), "another source of the same owner");
    assert_eq!(rig.take(), None);
    assert_eq!(rig.queue.len(), 1);
    rig.queue.finished(owner(0), Some(7));
    assert_eq!(rig.take(), Some(second));
    rig.queue.finished(owner(0), Some(7));
    rig.queue.finished(owner(0), Some(8));
    rig.serve(0);
}

#[test]
fn what_is_taken_out_frees_its_position_once() {
    let mut rig = Rig::new(1);
    let (id, _) = rig.push(0).unwrap();
    assert_eq!(rig.push(1), None);
    assert_eq!(rig.queue.remove(owner(0), id), Some(id));
    assert_eq!(rig.queue.remove(owner(0), id), None);
    assert_eq!(rig.queue.len(), 0);
    rig.serve(1);
}

#[test]
fn of_those_served_a_bounded_number_is_remembered() {
    let mut served = LastServed::default();
    for number in 0..=MOST_REMEMBERED as u32 {
        served.note(QueueOwner::of(&number.to_le_bytes()));
    }
    assert_eq!((served.times.len(), served.order.len()), (MOST_REMEMBERED, MOST_REMEMBERED));
    assert_eq!(served.at(QueueOwner::of(&0_u32.to_le_bytes())), 0);
    assert_eq!(served.at(QueueOwner::of(&1_u32.to_le_bytes())), 2);
}

/// After any steps the indexes agree with the jobs, and no job is lost.
#[test]
fn the_indexes_agree_with_the_jobs() {
    proptest::proptest!(|(steps: Vec<(u8, u8)>)| {
        let mut rig = Rig::new(6);
        let (mut inside, mut running) = (Vec::new(), Vec::new());
        for (step, number) in steps {
            let (number, source) = (number % 4, QueueSource::from(number % 8));
            match step % 4 {
                0 | 1 => {
                    if let Some((id, displaced)) = rig.push_from(number, Some(source)) {
                        inside.push((owner(number), id));
                        inside.retain(|(_, id)| Some(*id) != displaced);
                    }
                }
                2 => if let Some(taken) = rig.queue.take() {
                    let (owner, source) = (taken.owner, taken.source);
                    assert!(!running.contains(&(owner, source)));
                    running.push((owner, source));
                    inside.retain(|(_, id)| *id != taken.job);
                } else {
                    assert!(inside.iter().all(|_| !running.is_empty()));
                },
                _ => running.drain(..).for_each(|(owner, source)| rig.queue.finished(owner, source)),
            }
            let queue = &rig.queue;
            assert_eq!(queue.len(), inside.len());
            assert_eq!(queue.owners.values().map(|owner| owner.jobs.len()).sum::<usize>(), inside.len());
            assert_eq!(queue.shares.len(), queue.owners.len());
            assert_eq!(queue.shares.iter().map(|(jobs, ..)| jobs).sum::<usize>(), inside.len());
            assert!(queue.turns.len() <= queue.owners.len());
        }
    });
}
