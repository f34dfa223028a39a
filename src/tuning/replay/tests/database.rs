//! The same through the real record: written, folded and read from SQL.

use std::time::Duration;

use gatehouse_limiter::{Rule, RuleAction};

use super::against_truth::{plenty, today};
use super::counted::count;
use super::drafts::{enforced, limits};
use super::truth::{Run, run};
use super::week::{Attempt, BEGIN, REALM, Shape, week};
use crate::audit::{self, Audit, AuditEvent, EventRule, EventSubject, FROM_DEVICE, NOT_FORGIVEN};
use crate::clock::{Clock, Micros};
use crate::config::Limits;
use crate::db::Db;
use crate::db::tests::{TestDatabase, on_both_databases};
use crate::entropy::Entropy;
use crate::foundation::Foundation;
use crate::tuning::replay::row::ACCOUNT;
use crate::tuning::replay::{
    IncompleteReason, PreviewBase, PreviewError, PreviewProgress, PreviewService, ReplayAction, read, replay,
};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

fn audit(db: &Db, clock: &Clock) -> Audit {
    let settings = audit::Settings { retention: 30 * DAY, max_rows: 1_000_000 };
    let foundation = Foundation { entropy: Entropy::seeded(9), ..Foundation::keyed([3; 32], db, clock) };
    Audit::new(&foundation, settings)
}

async fn record(audit: &Audit, clock: &Clock, attempts: &[Attempt], run: &Run) {
    let mut order: Vec<usize> = (0..attempts.len()).collect();
    order.sort_by_key(|number| run.fates[*number].at);
    for (written, number) in order.into_iter().enumerate() {
        let (attempt, fate) = (&attempts[number], &run.fates[number]);
        clock.set(Micros(fate.at));
        // An address is the same in every realm.
        let bytes = attempt.subjects.map(|subject| subject.map(|subject| (subject % REALM).to_be_bytes()));
        let words = attempt.subjects.map(|subject| subject.map(|subject| format!("+{subject}")));
        let outcome = match (&fate.refused, attempt.action, attempt.right) {
            _ if fate.is_uncounted_answer() => audit::Outcome::Failed,
            (Some((_, refusal)), ..) => audit::Outcome::refused(refusal),
            (None, _, true) => audit::Outcome::Ok,
            (None, ReplayAction::Send, false) => audit::Outcome::Failed,
            (None, ..) => audit::Outcome::Wrong,
        };
        let action = match attempt.action {
            ReplayAction::SignIn | ReplayAction::DeviceSignIn => audit::Action::SignIn,
            ReplayAction::Attempt | ReplayAction::DeviceAttempt => audit::Action::Attempt,
            ReplayAction::Guess => audit::Action::Guess,
            ReplayAction::Send => audit::Action::Send,
            ReplayAction::Answer | ReplayAction::AttemptAnswer => audit::Action::Captcha,
            _ => audit::Action::Register,
        };
        let right = attempt.right && fate.refused.is_none();
        let device = attempt.subjects[5].filter(|_| fate.action.from_device().is_some());
        let realm = attempt.subjects[1].map(|address| format!("领域-{}", address / REALM));
        let (name, detail) = match fate.action {
            ReplayAction::Attempt | ReplayAction::DeviceAttempt => {
                let detail = match (device, right && !fate.forgave) {
                    (Some(device), false) => Some(format!(r#"{{"device":"{device}"}}"#)),
                    (Some(device), true) => Some(format!(r#"{{"device":"{device}","forgave":false}}"#)),
                    (None, true) => Some(NOT_FORGIVEN.to_owned()),
                    (None, false) => None,
                };
                (realm.as_deref(), detail)
            }
            ReplayAction::AttemptAnswer => {
                (Some("attempt"), realm.map(|realm| format!(r#"{{"realm":"{realm}"}}"#)))
            }
            ReplayAction::SignIn if right && !fate.forgave => (None, Some(NOT_FORGIVEN.to_owned())),
            _ => (device.map(|_| FROM_DEVICE), device.map(|device| format!(r#"{{"device":"{device}"}}"#))),
        };
        audit.record(AuditEvent {
            settled: fate.refused.is_none().then_some(Micros(fate.until)),
            why: fate.refused.as_ref().map(|(limit, refusal)| EventRule::refused(limit.as_str(), refusal)),
            name,
            solved: attempt.solved,
            account: words[0].as_deref().map(EventSubject::Login),
            address: bytes[1].as_ref().map(|bytes| EventSubject::Address(bytes)),
            network: bytes[2].as_ref().map(|bytes| EventSubject::Network(bytes)),
            phone: words[3].as_deref().map(EventSubject::Phone),
            prefix: words[4].as_deref().map(EventSubject::Prefix),
            detail,
            ..AuditEvent::new(Micros(fate.at), action, outcome)
        });
        if written % 200 == 0 {
            audit.flush().await;
        }
    }
    audit.flush().await;
}

on_both_databases!(
    one thread:
    what_is_read_from_the_database_gives_the_decisions_that_were_made,
    what_is_read_from_the_database_gives_what_a_draft_would_have_decided,
    limits_that_came_into_force_within_the_span_are_told_of,
    a_preview_tells_what_it_read_and_what_it_lacks,
    an_address_counts_in_each_realm_for_itself,
    each_event_is_read_once_however_many_there_are_of_one_microsecond,
);

async fn what_is_read_from_the_database_gives_the_decisions_that_were_made(database: TestDatabase) {
    let shape = Shape { days: 3, people: 40, slow: true };
    let attempts = week(21, shape);
    let decided = run(&attempts, &today()).await;
    let db = database.open().await;
    let clock = Clock::manual(Micros(BEGIN));
    record(&audit(&db, &clock), &clock, &attempts, &decided).await;
    let truth = count(&attempts, &today(), &decided, &decided, BEGIN);
    let end = Micros(clock.now().0 + 1);
    let read = read(&db, Micros(BEGIN), end, DAY, |_, _| {}).await.unwrap();
    let replayed = replay(&read.recording, &today(), &today(), read.from);
    assert_eq!(replayed.recorded, truth);
    assert_eq!(replayed.draft, replayed.recorded);
}

async fn what_is_read_from_the_database_gives_what_a_draft_would_have_decided(database: TestDatabase) {
    let attempts = week(23, Shape { days: 3, people: 40, slow: true });
    let decided = run(&attempts, &plenty()).await;
    let real = run(&attempts, &today()).await;
    let db = database.open().await;
    let clock = Clock::manual(Micros(BEGIN));
    record(&audit(&db, &clock), &clock, &attempts, &decided).await;
    let read = read(&db, Micros(BEGIN), Micros(clock.now().0 + 1), DAY, |_, _| {}).await.unwrap();
    let replayed = replay(&read.recording, &plenty(), &today(), read.from);
    assert_eq!(replayed.draft, count(&attempts, &today(), &decided, &real, BEGIN));
}

async fn limits_that_came_into_force_within_the_span_are_told_of(database: TestDatabase) {
    let db = database.open().await;
    let clock = Clock::manual(Micros(BEGIN));
    let audit = audit(&db, &clock);
    let tried = [audit::Outcome::Wrong, audit::Outcome::Wrong, audit::Outcome::Wrong, audit::Outcome::Ok];
    for outcome in tried.into_iter().chain([audit::Outcome::Wrong]) {
        clock.advance(Duration::from_secs(1));
        let reset = outcome == audit::Outcome::Ok;
        let action = if reset { audit::Action::Reset } else { audit::Action::SignIn };
        let account = Some(EventSubject::Login("alice"));
        let address = Some(EventSubject::Address(&[4, 203, 0, 113, 7]));
        audit.record(AuditEvent { account, address, ..AuditEvent::new(clock.now(), action, outcome) });
    }
    audit.flush().await;
    clock.advance(Duration::from_secs(1));
    let begin = clock.now().minus(DAY);
    let tried = async |since, draft| {
        let current = PreviewBase { limits: Limits::default(), since };
        PreviewService::default()
            .preview((&db, &clock), current, draft, DAY, PreviewProgress::default())
            .await
            .unwrap()
    };
    for (since, changed) in [(None, false), (Some(begin), false), (Some(begin.plus(DAY / 2)), true)] {
        let report = tried(since, Limits::default()).await;
        assert_eq!(report.incomplete.contains(&IncompleteReason::LimitsChanged), changed);
        assert_eq!(report.recorded.all.admitted, 4, "as it was decided");
        assert_eq!(report.draft, report.recorded);
    }
    // A code that set a new password has cleared the log.
    let rule = |max| vec![Rule::sliding(max, DAY, RuleAction::Block)];
    let draft = |max| limits(&[enforced("login-account", rule(max))]);
    assert_eq!(tried(None, draft(3)).await.draft.all.admitted, 4);
    assert_eq!(tried(None, draft(2)).await.draft.all.admitted, 3);
}

async fn a_preview_tells_what_it_read_and_what_it_lacks(database: TestDatabase) {
    let db = database.open().await;
    let clock = Clock::manual(Micros(BEGIN));
    let attempts = week(22, Shape { days: 2, people: 10, slow: false });
    let decided = run(&attempts, &today()).await;
    record(&audit(&db, &clock), &clock, &attempts, &decided).await;
    let previews = PreviewService::default();
    let preview = async |previews: &PreviewService, span| {
        let base = PreviewBase { limits: today(), since: None };
        let progress = PreviewProgress::default();
        let report = previews.preview((&db, &clock), base, Limits::default(), span, progress.clone()).await;
        assert_eq!(progress.percent(), if report.is_ok() { 100 } else { 0 });
        report
    };
    let tried = async |previews| preview(previews, DAY).await;
    let report = tried(&previews).await.unwrap();
    let reported = attempts.iter().filter(|attempt| !attempt.action.is_answer());
    let counted = reported.filter(|attempt| attempt.at > clock.now().0 - DAY.as_micros() as i64);
    let last = 1;
    let recorded = &report.recorded.all;
    assert_eq!(recorded.attempts, counted.count() as u64 - last, "the span ends before now");
    assert_eq!(report.incomplete, [IncompleteReason::NotWarm], "the prefixes' day begins before the record");
    assert!(report.not_replayed.contains(&"captcha-total".to_owned()));
    assert!(!report.not_replayed.contains(&"login-device".to_owned()));
    clock.advance(Duration::from_secs(30));
    let again = tried(&previews).await.unwrap();
    assert_eq!(again.to, report.to, "what was read serves the next draft");
    clock.advance(Duration::from_secs(31));
    let later = tried(&previews).await.unwrap();
    assert!(later.to > report.to);
    let refused = preview(&previews, Duration::from_secs(1)).await;
    assert!(matches!(refused, Err(PreviewError::Span(_))));
}

async fn an_address_counts_in_each_realm_for_itself(database: TestDatabase) {
    let db = database.open().await;
    let clock = Clock::manual(Micros(BEGIN));
    let audit = audit(&db, &clock);
    for (number, name) in [Some("shop"), Some("mail"), None].into_iter().cycle().take(9).enumerate() {
        clock.advance(Duration::from_secs(1));
        let account = format!("somebody-{number}");
        let action = if name.is_some() { audit::Action::Attempt } else { audit::Action::SignIn };
        audit.record(AuditEvent {
            name,
            account: Some(EventSubject::Login(&account)),
            address: Some(EventSubject::Address(&[4, 203, 0, 113, 7])),
            network: Some(EventSubject::Network(&[4, 203, 0, 113])),
            ..AuditEvent::new(clock.now(), action, audit::Outcome::Wrong)
        });
    }
    audit.flush().await;
    clock.advance(Duration::from_secs(1));
    let refused = async |max| {
        let rule = || vec![Rule::sliding(max, DAY, RuleAction::Block)];
        let draft = limits(&[enforced("guard-address", rule()), enforced("guard-network", rule())]);
        let current = PreviewBase { limits: Limits::default(), since: None };
        let report = PreviewService::default()
            .preview((&db, &clock), current, draft, DAY, PreviewProgress::default())
            .await
            .unwrap();
        report.draft.all.throttled
    };
    assert_eq!((refused(3).await, refused(2).await, refused(1).await), (0, 2, 4));
}

async fn each_event_is_read_once_however_many_there_are_of_one_microsecond(database: TestDatabase) {
    let db = database.open().await;
    let clock = Clock::manual(Micros(BEGIN));
    let audit = audit(&db, &clock);
    let mut number = 0;
    for together in [1, 300, 49, 50, 51, 1, 2, 100] {
        clock.advance(Duration::from_micros(1));
        for _ in 0..together {
            number += 1;
            let account = format!("somebody-{number}");
            let account = Some(EventSubject::Login(&account));
            let (action, outcome) = (audit::Action::SignIn, audit::Outcome::Wrong);
            audit.record(AuditEvent { account, ..AuditEvent::new(clock.now(), action, outcome) });
        }
        audit.flush().await;
    }
    let read = read(&db, Micros(BEGIN + 2), Micros(BEGIN + 9), DAY, |_, _| {}).await.unwrap();
    let mut accounts: Vec<u32> = read.recording.iter().map(|row| row.subject(ACCOUNT)).collect();
    assert!(read.recording.is_sorted_by_key(|row| row.at()));
    accounts.sort_unstable();
    assert!(accounts.into_iter().eq(0..number), "each of them");
}
