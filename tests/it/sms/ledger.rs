//! The ledger: how administrators read it, how gateways report to it, and what it deletes.

use super::rig::*;
use gatehouse::codes::*;
use gatehouse::message::*;
use gatehouse::sms::*;

const NO_LIMITS: &str = "[limits.sms-phone]\nrules = []\n[limits.sms-address]\nrules = []
    [limits.sms-prefix]\nrules = []\n[sms.brake]\nenabled = false";

async fn ledger_of(store: Store, toml: &str) -> (Rig, Instance) {
    let rig = Rig::new(store, toml).await;
    let instance = rig.instance().await;
    (rig, instance)
}

async fn ids(instance: &Instance, filter: &LedgerFilter, page: u32) -> Vec<MessageId> {
    let (mut ids, mut after) = (Vec::new(), None);
    loop {
        let page = instance.codes.ledger().page(filter, after.as_ref(), page).await.unwrap();
        ids.extend(page.entries.iter().map(|entry| entry.id));
        // As it is in a URL.
        after = page.next.map(|next| LedgerCursor::parse(&next.to_string()).unwrap());
        if after.is_none() {
            return ids;
        }
    }
}

on_each_store!(
    pages_show_every_message_once_and_the_newest_first,
    a_message_that_comes_meanwhile_moves_no_page,
    filters_show_what_they_name,
    nothing_in_the_database_is_a_number_or_a_code,
    reports_are_written_and_what_was_delivered_stays_so,
    the_ledger_forgets_in_batches_what_is_older_than_it_is_kept,
    what_a_window_still_counts_is_never_forgotten,
);

async fn pages_show_every_message_once_and_the_newest_first(store: Store) {
    let (rig, instance) = ledger_of(store, NO_LIMITS).await;
    for count in 0..25 {
        sent(instance.send(&phone()).await);
        // Some in one microsecond.
        if count % 4 == 0 {
            rig.advance(SECOND);
        }
    }
    let whole = ids(&instance, &LedgerFilter::default(), 1000).await;
    assert_eq!(whole.len(), 25);
    for size in [1, 7, 24, 25, 26] {
        assert_eq!(ids(&instance, &LedgerFilter::default(), size).await, whole, "pages of {size}");
    }
    let times: Vec<_> = instance.ledger().await.iter().map(|entry| entry.at).collect();
    assert!(times.is_sorted_by(|newer, older| newer >= older));
    assert_eq!(rig.sent().last().unwrap().phone.ledger_mask().len(), instance.ledger().await[0].phone.len());
}

async fn a_message_that_comes_meanwhile_moves_no_page(store: Store) {
    let (rig, instance) = ledger_of(store, NO_LIMITS).await;
    for _ in 0..6 {
        sent(instance.send(&phone()).await);
        rig.advance(SECOND);
    }
    let before = ids(&instance, &LedgerFilter::default(), 1000).await;
    let first = instance.codes.ledger().page(&LedgerFilter::default(), None, 3).await.unwrap();
    sent(instance.send(&phone()).await);
    let second =
        instance.codes.ledger().page(&LedgerFilter::default(), first.next.as_ref(), 3).await.unwrap();
    let seen: Vec<_> = first.entries.iter().chain(&second.entries).map(|entry| entry.id).collect();
    assert_eq!(seen, before);
}

async fn filters_show_what_they_name(store: Store) {
    let (rig, instance) = ledger_of(store, NO_LIMITS).await;
    let (one, other) = (phone(), number_of("+8615912340001"));
    sent(instance.send(&one).await);
    sent(instance.send(&neighbour(&one)).await);
    rig.mood(Mood::Refuses);
    assert_eq!(instance.send(&other).await, SendOutcome::NotSent);
    let count = async |filter: LedgerFilter| ids(&instance, &filter, 2).await.len();
    let prefix = |prefix: &str| LedgerFilter { prefix: Some(prefix.to_owned()), ..LedgerFilter::default() };
    assert_eq!(count(prefix(one.block())).await, 2);
    assert_eq!(count(prefix(one.range())).await, 2);
    assert_eq!(count(prefix("+86")).await, 0, "a prefix is whole");
    let by_state = |state| LedgerFilter { state: Some(state), ..LedgerFilter::default() };
    assert_eq!(count(by_state(MessageState::Refused)).await, 1);
    assert_eq!(count(by_state(MessageState::Accepted)).await, 2);
    let by_phone = |phone| LedgerFilter {
        phone: Some(instance.codes.phone_key(instance.live(), phone)),
        ..LedgerFilter::default()
    };
    assert_eq!(count(by_phone(&one)).await, 1);
    assert_eq!(count(LedgerFilter { state: Some(MessageState::Refused), ..by_phone(&one) }).await, 0);
    assert_eq!(count(LedgerFilter { state: Some(MessageState::Refused), ..prefix(other.range()) }).await, 1);
}

async fn nothing_in_the_database_is_a_number_or_a_code(store: Store) {
    let (rig, instance) = ledger_of(store, NO_LIMITS).await;
    let phone = number_of("+8613812345678");
    sent(instance.send(&phone).await);
    let code = rig.last_code();
    // Ids and hashes are hexadecimal and random: their digits may spell anything, so the columns are told apart.
    let entry = format!("{:?}", instance.ledger().await);
    assert!(!entry.contains("13812345678") && !entry.contains(code.expose()), "{entry}");
    assert!(entry.contains("+861381234****"), "{entry}");
}

fn report(message: ReportedMessage, state: ReportState) -> DeliveryReport {
    DeliveryReport { message, state, detail: Some("word".repeat(100)) }
}

async fn reports_are_written_and_what_was_delivered_stays_so(store: Store) {
    let (rig, instance) = ledger_of(store, NO_LIMITS).await;
    sent(instance.send(&phone()).await);
    let id = rig.sent()[0].id;
    let tell = async |gateway: &str, message: ReportedMessage, state| {
        instance.codes.ledger().report(gateway, &[report(message, state)]).await.unwrap()
    };
    let shown = async || instance.ledger().await[0].report;
    let by_id = || ReportedMessage::Id(id);
    assert_eq!(tell("twilio", by_id(), ReportState::Delivered).await, 0, "not that gateway's message");
    assert_eq!(
        tell("outbox", ReportedMessage::Id(MessageId::random(&Default::default())), ReportState::Failed)
            .await,
        0
    );
    assert_eq!(shown().await, None);
    assert_eq!(tell("outbox", by_id(), ReportState::Pending).await, 1);
    assert_eq!(tell("outbox", by_id(), ReportState::Failed).await, 1);
    assert_eq!(tell("outbox", by_id(), ReportState::Pending).await, 0);
    assert_eq!(shown().await, Some(ReportState::Failed));
    assert_eq!(
        tell("outbox", ReportedMessage::Reference(format!("ref-{id}")), ReportState::Delivered).await,
        1
    );
    for state in [ReportState::Pending, ReportState::Failed, ReportState::Delivered] {
        assert_eq!(tell("outbox", by_id(), state).await, 0);
    }
    let entry = &instance.ledger().await[0];
    assert_eq!((entry.report, entry.reported_at), (Some(ReportState::Delivered), Some(rig.clock.now())));
    assert_eq!(entry.report_detail.as_ref().unwrap().len(), 200, "a gateway may find many words");
}

async fn the_ledger_forgets_in_batches_what_is_older_than_it_is_kept(store: Store) {
    let (rig, instance) = ledger_of(store, &format!("{NO_LIMITS}\n[sms]\nretention = '7d'")).await;
    for _ in 0..5 {
        sent(instance.send(&phone()).await);
    }
    rig.advance(7 * 24 * HOUR);
    sent(instance.send(&phone()).await);
    let purge = async |batch| instance.codes.purge(instance.live(), batch).await.unwrap();
    // Expired codes are deleted as well, a batch of each.
    assert_eq!(purge(2).await, 2, "two codes; the messages are just as old as they may be");
    rig.advance(MICRO);
    assert_eq!(purge(2).await, 2, "two of each");
    assert_eq!(instance.ledger().await.len(), 4);
    while purge(2).await == 2 {}
    assert_eq!(instance.ledger().await.len(), 1);
}

async fn what_a_window_still_counts_is_never_forgotten(store: Store) {
    let toml = "[limits.sms-phone]\nrules = [{ max = 2, per = 'month' }]\n[sms]\nretention = '40d'";
    let (rig, instance) = ledger_of(store, toml).await;
    let phone = phone();
    for _ in 0..2 {
        sent(instance.send(&phone).await);
    }
    rig.advance(20 * 24 * HOUR);
    // As if the retention had been shortened by hand, below what the configuration accepts.
    let mut live = instance.live().clone();
    live.sms.retention = HOUR;
    instance.codes.purge(&live, 100).await.unwrap();
    assert_eq!(instance.ledger().await.len(), 2);
    assert_eq!(throttled(rig.instance().await.send(&phone).await).0, "sms-phone");
}
