//! What strangers and owners can cause at will is few rows a minute; and what is news is read in the order of its commits.

use strum::VariantArray;

use super::*;
use crate::audit::episodes::{PACE, Recording, recording};
use crate::foundation::Foundation;

on_both_databases!(
    whatever_is_done_at_will_is_few_rows_and_few_bytes_a_minute,
    what_limits_count_keeps_its_time_however_often_it_is_folded,
    the_pace_begins_anew_with_each_minute,
    whoever_reads_on_from_a_number_misses_no_news,
);

/// How often each is done within the minute.
const TIMES: u32 = 1_000;
/// As many rows as subjects can be told apart at one, and a few: a second for each of an account's own.
const MOST_ROWS: usize = PACE as usize + 70;
const MOST_BYTES: i64 = 64 * 1024;

/// What bounds an action that is a row each time: a limit in front of it, or who may cause it. The compiler asks for the
/// next one, too.
const fn bounded_by(action: Action) -> &'static str {
    match action {
        Action::SignIn | Action::PasswordDisabled => "login-account, login-address, login-network",
        Action::Attempt => "guard-account, guard-address, guard-network; a program's token",
        Action::TotpDisabled => "an administrator, or whoever sets the app up again",
        Action::Guess => "sms-guess, login-address, login-network",
        Action::Mail => "mail-mailbox, mail-address, mail-network, mail-total",
        Action::Frozen => "whoever has one of its codes, of 80 bits",
        Action::MailGuess => "mail-guess, login-address, login-network",
        Action::Reset => "sms-phone: it takes a code",
        Action::Send => "sms-phone, sms-address, sms-network, sms-total",
        Action::Register => "register-address, and a hash for each",
        Action::Captcha => "login-address, login-network",
        Action::Budget | Action::Attack | Action::KeyRotated | Action::Reload | Action::Spray => "us",
        Action::FactorReset | Action::Admin => "administrators",
        // Only refusals are recorded.
        Action::Custom | Action::Request => "nobody",
        Action::FactorAdded
        | Action::FactorRemoved
        | Action::FactorFailed
        | Action::ConsentGiven
        | Action::TokenReuse
        | Action::PasswordBreached
        | Action::ClientCall => "",
    }
}

/// Those that are a row each: whatever else there is, anybody may do as often as they like.
fn is_row_each(action: Action, outcome: Outcome, name: &str, from_device: bool) -> bool {
    use Outcome::{Began, Ended, Failed, Ok, Refused, Unknown, Withheld, Wrong};
    match action {
        Action::SignIn => {
            [Unknown, Withheld, Failed, Began, Ended].contains(&outcome)
                || outcome == Wrong && name != "device"
        }
        Action::Attempt if from_device => ![Refused, Wrong].contains(&outcome),
        Action::Register => outcome != Refused && (outcome != Failed || name != "unfit-password"),
        Action::Captcha => outcome == Wrong,
        Action::Admin => {
            !["access", "account-export", "account-delete"].contains(&name)
                || name == "access" && outcome != Refused
        }
        Action::Request
        | Action::Reload
        | Action::Attempt
        | Action::Send
        | Action::Guess
        | Action::Mail
        | Action::MailGuess => outcome != Refused,
        Action::Custom => [Ok, Wrong, Unknown, Withheld, Failed, Refused, Began, Ended].contains(&outcome),
        Action::FactorAdded
        | Action::FactorRemoved
        | Action::FactorFailed
        | Action::ConsentGiven
        | Action::TokenReuse
        | Action::PasswordBreached
        | Action::ClientCall => false,
        Action::Frozen
        | Action::Reset
        | Action::PasswordDisabled
        | Action::FactorReset
        | Action::TotpDisabled
        | Action::KeyRotated
        | Action::Budget
        | Action::Spray
        | Action::Attack => true,
    }
}

const REFUSED: [Outcome; 5] =
    [Outcome::Challenged, Outcome::Throttled, Outcome::Busy, Outcome::Asked, Outcome::Unavailable];

/// Of one account from an address each time, and of nobody from all addresses of a network.
async fn whatever_is_done_at_will_is_few_rows_and_few_bytes_a_minute(database: TestDatabase) {
    let rig = rig(database).await;
    let names = [
        "passkey",
        "recovery",
        "totp",
        "device",
        "unfit-password",
        "account-export",
        "access",
        "login-taken",
    ];
    let all = Action::VARIANTS
        .iter()
        .flat_map(|action| Outcome::VARIANTS.iter().map(move |outcome| (*action, *outcome)));
    for (action, outcome) in all {
        let mut flooded = None;
        for (name, from_device) in names.iter().flat_map(|name| [false, true].map(|device| (*name, device))) {
            let event = AuditEvent {
                name: Some(name),
                detail: from_device.then(|| device(0)),
                account: Some(EventSubject::Login("alice")),
                ..AuditEvent::new(NOON, action, outcome)
            };
            let is_each = recording(&event) == Recording::Each;
            let expected = is_row_each(action, outcome, name, from_device) && !REFUSED.contains(&outcome);
            assert_eq!(is_each, expected, "{action:?} {outcome:?} {name} {from_device}");
            assert!(
                !is_each || !bounded_by(action).is_empty(),
                "nothing bounds {action:?} {outcome:?} {name}"
            );
            if !is_each && flooded != Some(true) {
                flooded = Some(from_device);
                flood(&rig, &event).await;
            }
        }
    }
}

fn device(number: u32) -> String {
    format!(r#"{{"device":"{number:032x}"}}"#)
}

/// If it says a device, from another one each time.
async fn flood(rig: &Rig, event: &AuditEvent<'_>) {
    for account in [event.account, None] {
        for number in 0..TIMES {
            let bytes = [&[6, 0x20, 1, 0xd, 0xb8, 0, 0x42][..], &number.to_be_bytes()[2..]].concat();
            let (address, network) = (EventSubject::Address(&bytes), EventSubject::Network(&bytes[..7]));
            let at = Micros(NOON.0 + i64::from(number) * 10_000);
            rig.audit.record(AuditEvent {
                at,
                account,
                address: Some(address),
                network: Some(network),
                detail: event.detail.as_ref().map(|_| device(number)),
                ..event.clone()
            });
        }
        rig.audit.flush().await;
        const SQL: &str =
            "SELECT COUNT(*), CAST(SUM(count) AS BIGINT), CAST(SUM(200 + COALESCE(LENGTH(hits), 0)
            + COALESCE(LENGTH(detail), 0)) AS BIGINT) FROM events";
        let (rows, events, bytes): (i64, i64, i64) =
            on_db!(&rig.db, pool => query_as(SQL).fetch_one(pool).await).unwrap();
        let what = format!("{:?} {:?} {:?}", event.action, event.outcome, event.name);
        assert!(rows as usize <= MOST_ROWS + TIMES as usize / 400, "{what}: {rows} rows");
        assert!(bytes <= MOST_BYTES, "{what}: {bytes} bytes");
        assert_eq!(events, i64::from(TIMES), "{what}: none is lost");
        rig.sql("DELETE FROM events").await;
        // Another minute.
        rig.clock.set(rig.clock.now().plus(MINUTE));
        rig.audit.end_episodes(false);
    }
}

async fn what_limits_count_keeps_its_time_however_often_it_is_folded(database: TestDatabase) {
    let rig = rig(database).await;
    let times: Vec<Micros> = (0..1_000).map(|number| Micros(NOON.0 + number * 7_001)).collect();
    for at in &times {
        let event = AuditEvent::new(*at, Action::FactorFailed, Outcome::Wrong);
        let account = Some(EventSubject::Login("alice"));
        rig.audit.record(AuditEvent { name: Some("recovery"), account, address: Some(HERE), ..event });
    }
    rig.audit.flush().await;
    let rows = rig.audit.log().page(&EventFilter::default(), None, 500).await.unwrap().entries;
    assert!(rows.len() <= PACE as usize + 3, "{} rows", rows.len());
    let mut told: Vec<Micros> = rows
        .iter()
        .flat_map(|row| {
            let hits =
                row.hits.as_deref().unwrap_or("0").split(',').map(|offset| offset.parse::<i64>().unwrap());
            let hits: Vec<_> = hits.map(|offset| Micros(row.at.0 + offset)).collect();
            assert_eq!(hits.len() as i64, row.count);
            hits
        })
        .collect();
    told.sort();
    assert_eq!(told, times);
}

async fn the_pace_begins_anew_with_each_minute(database: TestDatabase) {
    let rig = rig(database).await;
    let add = |name: &'static str| {
        let account = Some(EventSubject::Login("alice"));
        let event = AuditEvent::new(rig.clock.now(), Action::FactorAdded, Outcome::Ok);
        rig.audit.record(AuditEvent { name: Some(name), account, ..event });
    };
    for _ in 0..PACE + 10 {
        add("second-step");
    }
    // What is folded hides nothing else: that has a row.
    add("passkey");
    assert_eq!(rig.rows().await.len(), PACE as usize + 2);
    rig.clock.set(at(60));
    add("passkey");
    rig.clock.set(at(30));
    add("passkey");
    assert_eq!(rig.rows().await.len(), PACE as usize + 4, "also after a clock has stepped back");
}

/// Several instances write at once, and one reads meanwhile.
async fn whoever_reads_on_from_a_number_misses_no_news(database: TestDatabase) {
    let rig = rig(database).await;
    let foundation = Foundation::keyed([1; 32], &rig.db, &rig.clock);
    let writers: Vec<_> = (0..6_u32)
        .map(|writer| {
            let audit = Audit::new(&foundation, rig.audit.settings().clone());
            tokio::spawn(async move {
                for number in 0..20_i64 {
                    for action in [Action::PasswordDisabled, Action::SignIn] {
                        // Not in the order in which they happened.
                        let at = Micros(NOON.0 - number * 1_000_000 + i64::from(writer));
                        audit.record(AuditEvent::new(at, action, Outcome::Ok));
                    }
                    audit.flush().await;
                }
            })
        })
        .collect();
    let (mut seen, mut after) = (Vec::new(), rig.audit.log().news_before(NOON).await.unwrap());
    assert_eq!(after, 0);
    loop {
        let are_done = writers.iter().all(tokio::task::JoinHandle::is_finished);
        let page = rig.audit.log().news(after, 7).await.unwrap();
        after = page.last().map_or(after, |news| news.number);
        let is_last = are_done && page.is_empty();
        seen.extend(page.into_iter().map(|news| (news.entry.at, news.entry.id)));
        if is_last {
            break;
        }
        tokio::task::yield_now().await;
    }
    let filter = EventFilter { actions: vec![Action::PasswordDisabled], ..EventFilter::default() };
    let all = rig.audit.log().page(&filter, None, 500).await.unwrap().entries;
    assert_eq!(all.len(), 120);
    let mut all: Vec<_> = all.iter().map(|entry| (entry.at, entry.id)).collect();
    all.sort();
    seen.sort();
    assert_eq!(seen, all, "each once");
    assert_eq!(rig.audit.log().news_before(NOON.plus(MINUTE)).await.unwrap(), after);
}
