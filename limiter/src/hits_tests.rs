use proptest::prelude::*;

use super::*;

#[derive(Debug, Clone)]
enum Step {
    Keep(i64, u8),
    Remove(u8),
    TakeOut(i64, u8),
    Forgive(i64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..40i64, any::<u8>()).prop_map(|(at, id)| Step::Keep(at, id)),
        2 => (0..40i64, 0..8u8).prop_map(|(at, id)| Step::Keep(at, id)),
        1 => any::<u8>().prop_map(Step::Remove),
        1 => (0..40i64, 0..8u8).prop_map(|(at, id)| Step::TakeOut(at, id)),
        1 => (0..40i64).prop_map(Step::Forgive),
    ]
}

proptest! {
    /// After any steps it answers as a sorted list would.
    #[test]
    fn hits_answer_as_a_sorted_list(steps in proptest::collection::vec(step(), 0..60), capacity in 1usize..30, near in 0usize..40) {
        // For each hit: whether it is not forgiven, its time and its id, in the order of a sorted set.
        let (mut hits, mut list) = (HitRing::default(), Vec::<(bool, i64, u8)>::new());
        for step in steps {
            match step {
                Step::Keep(at, id) => {
                    hits.keep(hit(at, id), capacity);
                    list.push((!list.iter().any(|(stands, other, _)| !stands && *other > at), at, id));
                    list.sort_unstable();
                    list.drain(..list.len().saturating_sub(capacity));
                }
                Step::Remove(id) => {
                    prop_assert_eq!(hits.remove(hit(0, id).id), list.iter().any(|(.., other)| *other == id));
                    list.retain(|(.., other)| *other != id);
                }
                Step::TakeOut(at, id) => {
                    let found = list.iter().rposition(|other| (other.1, other.2) == (at, id));
                    prop_assert_eq!(hits.take_out(hit(at, id)), found.is_some());
                    found.map(|index| list.remove(index));
                }
                Step::Forgive(up_to) => {
                    hits.forgive(Micros(up_to));
                    list.iter_mut().for_each(|(stands, at, _)| *stands &= *at > up_to);
                    list.sort_unstable();
                }
            }
            prop_assert_eq!(hits.len(), list.len());
            prop_assert_eq!(hits.last().map(|at| at.0), list.last().map(|(_, at, _)| *at));
            prop_assert_eq!(hits.unforgiven(), list.iter().filter(|(stands, ..)| *stands).count());
            for n in 1..=capacity + 1 {
                let expected = list.len().checked_sub(n).map(|index| list[index].1);
                prop_assert_eq!(hits.nth_newest(n).map(|at| at.0), expected);
            }
            let newest: Vec<_> = list.iter().rev().map(|(_, at, _)| *at).take(3).collect();
            prop_assert_eq!(hits.newest(3).iter().map(|at| at.0).collect::<Vec<_>>(), newest);
            for start in 0..40 {
                let expected = list.iter().filter(|(_, at, _)| *at <= start).count();
                prop_assert_eq!(hits.not_newer(Micros(start), near), expected);
            }
            prop_assert!(list.iter().all(|(.., id)| hits.time_of(hit(0, *id).id).is_some()));
        }
    }
}

fn hit(at: i64, id: u8) -> KeptHit {
    KeptHit { at: Micros(at), id: HitId([id; 6]) }
}
