//! Attacks in the record: what several instances make of it, its figures, and its end.

use std::time::Duration;

use crate::audit::{
    Action, AttackEntry, AttackFigures, AttackKind, AttackWatch, Audit, AuditEvent, EventFilter,
    EventSubject, FROM_DEVICE, Outcome, Settings,
};
use crate::clock::{Clock, Micros};
use crate::db::Db;
use crate::db::tests::{TestDatabase, on_both_databases};
use crate::foundation::Foundation;

const NOON: Micros = Micros(1_772_366_400_000_000);
const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

struct AttackBench {
    db: Db,
    clock: Clock,
    audit: Audit,
    watch: AttackWatch,
    _database: TestDatabase,
}

async fn rig(database: TestDatabase) -> AttackBench {
    let (db, clock) = (database.open().await, Clock::manual(NOON));
    let audit = instance(&db, &clock);
    AttackBench { watch: AttackWatch::new(audit.clone()), db, clock, audit, _database: database }
}

fn instance(db: &Db, clock: &Clock) -> Audit {
    let settings = Settings { retention: Duration::from_secs(30 * 86_400), max_rows: 1_000_000 };
    Audit::new(&Foundation::keyed([1; 32], db, clock), settings)
}

impl AttackBench {
    /// An attempt to sign in at that name from that address.
    fn attempt(&self, name: &str, address: [u8; 4], outcome: Outcome) {
        self.named(None, name, address, outcome);
    }

    fn named(&self, by: Option<&str>, name: &str, [a, b, c, d]: [u8; 4], outcome: Outcome) {
        self.audit.record(AuditEvent {
            name: by,
            detail: by.map(|_| r#"{"device":"00112233445566778899aabbccddeeff"}"#.to_owned()),
            account: Some(EventSubject::Login(name)),
            address: Some(EventSubject::Address(&[4, a, b, c, d])),
            network: Some(EventSubject::Network(&[4, a, b, c])),
            ..AuditEvent::new(self.clock.now(), Action::SignIn, outcome)
        });
    }

    /// One address at many names.
    fn stuffing(&self, names: usize) {
        for name in 0..names {
            self.attempt(&format!("victim-{name}"), [203, 0, 113, 7], Outcome::Wrong);
        }
    }

    /// The same address at many names of another program's login.
    fn stuffing_in(&self, realm: &str, names: usize) {
        for name in 0..names {
            self.audit.record(AuditEvent {
                name: Some(realm),
                account: Some(EventSubject::Login(&format!("{realm} victim-{name}"))),
                address: Some(EventSubject::Address(&[4, 203, 0, 113, 7])),
                network: Some(EventSubject::Network(&[4, 203, 0, 113])),
                ..AuditEvent::new(self.clock.now(), Action::Attempt, Outcome::Wrong)
            });
        }
    }

    async fn check(&self) -> Vec<AttackEntry> {
        self.audit.flush().await;
        self.watch.check().await.unwrap()
    }

    /// Began and ended, oldest first.
    async fn told(&self) -> Vec<(Outcome, Option<String>)> {
        self.audit.flush().await;
        let filter = EventFilter { actions: vec![Action::Attack], ..EventFilter::default() };
        let page = self.audit.log().page(&filter, None, 100).await.unwrap();
        page.entries.into_iter().rev().map(|entry| (entry.outcome, entry.name)).collect()
    }
}

on_both_databases!(
    an_attack_begins_and_ends_once_whichever_instances_notice,
    a_spray_and_one_address_have_different_figures,
    honest_people_are_those_who_prove_it,
    messages_say_where_they_go_and_whether_codes_come_back,
    a_flood_of_mails_is_told_whether_anybody_gets_them_or_not,
    an_attack_goes_on_through_a_pause_and_after_all_instances_were_down,
    what_is_usual_is_no_attack,
    each_realm_is_watched_by_itself,
    what_is_usual_in_one_realm_is_an_attack_in_another,
    figures_of_realms_are_kept_as_long_as_others,
    of_eight_instances_that_notice_an_attack_in_a_realm_one_tells,
);

async fn an_attack_begins_and_ends_once_whichever_instances_notice(database: TestDatabase) {
    let rig = rig(database).await;
    rig.stuffing(260);
    rig.audit.flush().await;
    let instances: Vec<_> = (0..8).map(|_| instance(&rig.db, &rig.clock)).collect();
    let check_all = async || {
        let checks: Vec<_> = instances
            .iter()
            .map(|audit| {
                let (audit, watch) = (audit.clone(), AttackWatch::new(audit.clone()));
                tokio::spawn(async move {
                    let found = watch.check().await.unwrap();
                    audit.flush().await;
                    (found, watch.alarm().load(std::sync::atomic::Ordering::Relaxed))
                })
            })
            .collect();
        let mut all = Vec::new();
        for check in checks {
            all.push(check.await.unwrap());
        }
        all
    };
    let found = check_all().await;
    assert!(found.iter().all(|(found, alarm)| found.len() == 1 && *alarm), "{found:?}");
    assert!(found.iter().all(|(all, _)| all[0].id == found[0].0[0].id));
    let sign_ins = || Some("sign-ins".to_owned());
    assert_eq!(rig.told().await, [(Outcome::Began, sign_ins())]);
    // Five minutes later nothing is recent, and ten minutes after that it is over.
    rig.clock.advance(MINUTE * 4);
    assert_eq!(rig.check().await[0].seen_at, NOON.plus(MINUTE * 4));
    rig.clock.advance(MINUTE * 10 - SECOND);
    assert_eq!(rig.check().await.len(), 1);
    rig.clock.advance(SECOND);
    let found = check_all().await;
    assert!(found.iter().all(|(found, alarm)| found.is_empty() && !alarm), "{found:?}");
    assert_eq!(rig.told().await, [(Outcome::Began, sign_ins()), (Outcome::Ended, sign_ins())]);
    let past = rig.watch.since(NOON, 9).await.unwrap();
    assert_eq!((past.len(), past[0].figures.attempts), (1, 260));
    assert_eq!((past[0].began_at, past[0].seen_at), (NOON, NOON.plus(MINUTE * 4)));
    // The same again is another one.
    rig.stuffing(60);
    assert_eq!(rig.check().await.len(), 1);
    assert_eq!(rig.told().await.len(), 3);
}

async fn a_spray_and_one_address_have_different_figures(database: TestDatabase) {
    let rig = rig(database).await;
    for host in 0..500_u16 {
        let [high, low] = host.to_be_bytes();
        rig.attempt(&format!("victim-{}", host / 2), [198, 51 + high, low % 40, low], Outcome::Wrong);
    }
    let spray = rig.check().await.remove(0).figures;
    assert_eq!((spray.attempts, spray.recent, spray.usual), (500, 500, 0));
    assert_eq!((spray.addresses, spray.networks, spray.names, spray.done), (500, 80, 250, 500));
    assert_eq!((spray.top_address, spray.top_network, spray.top_name), (None, None, None));
    rig.clock.advance(MINUTE * 20);
    assert_eq!(rig.check().await.len(), 0);
    rig.stuffing(260);
    rig.attempt("victim-1", [198, 51, 100, 1], Outcome::Challenged);
    let single = rig.check().await.remove(0).figures;
    assert_eq!((single.attempts, single.addresses, single.networks, single.names), (261, 2, 2, 260));
    let (address, network) = (single.top_address.unwrap(), single.top_network.unwrap());
    assert_eq!((address.mask.as_str(), address.percent), ("203.0.113.0/24", 99));
    assert_eq!((network.mask.as_str(), network.percent), ("203.0.113.0/24", 99));
    assert_eq!((single.done, single.top_name), (260, None), "what was challenged was not compared");
}

async fn honest_people_are_those_who_prove_it(database: TestDatabase) {
    let rig = rig(database).await;
    rig.stuffing(60);
    let (kim, lee, home) = ("kimberly", "leeloo", [192, 0, 2, 1]);
    rig.attempt(kim, home, Outcome::Challenged);
    rig.named(Some(FROM_DEVICE), lee, home, Outcome::Challenged);
    rig.attempt("nobody", home, Outcome::Challenged);
    rig.clock.advance(SECOND * 5);
    rig.attempt(kim, home, Outcome::Ok);
    // From elsewhere it may be somebody else.
    rig.attempt("nobody", [192, 0, 2, 2], Outcome::Ok);
    rig.named(Some(FROM_DEVICE), lee, home, Outcome::Ok);
    let figures = rig.check().await.remove(0).figures;
    assert_eq!(figures.honest, 2);
    assert_eq!(figures.done, 62, "what a known device knows is no guess");
}

async fn messages_say_where_they_go_and_whether_codes_come_back(database: TestDatabase) {
    let rig = rig(database).await;
    let event = |action, phone: &'static str, outcome| AuditEvent {
        name: Some("login"),
        address: Some(EventSubject::Address(&[4, 203, 0, 113, 7])),
        network: Some(EventSubject::Network(&[4, 203, 0, 113])),
        phone: Some(EventSubject::Phone(phone)),
        prefix: Some(EventSubject::Prefix(&phone[..10])),
        ..AuditEvent::new(rig.clock.now(), action, outcome)
    };
    for number in ["+8613800138000", "+8613800138001", "+8613800138002"] {
        for _ in 0..12 {
            rig.audit.record(event(Action::Send, number, Outcome::Ok));
        }
    }
    rig.audit.record(event(Action::Send, "+8613800138002", Outcome::Challenged));
    rig.audit.record(event(Action::Guess, "+8613800138002", Outcome::Ok));
    rig.audit.record(event(Action::Guess, "+8613800138001", Outcome::Wrong));
    let attack = rig.check().await.remove(0);
    assert_eq!(attack.kind, AttackKind::Messages);
    let figures = attack.figures;
    assert_eq!((figures.attempts, figures.done, figures.entered, figures.honest), (37, 36, 1, 1));
    assert_eq!((figures.numbers, figures.prefixes), (3, 1));
    assert_eq!(figures.top_prefix.unwrap().mask, "+861380013****");
}

async fn a_flood_of_mails_is_told_whether_anybody_gets_them_or_not(database: TestDatabase) {
    let rig = rig(database).await;
    let event = |action, mailbox: &'static str, outcome| AuditEvent {
        name: Some("reset"),
        address: Some(EventSubject::Address(&[4, 203, 0, 113, 7])),
        network: Some(EventSubject::Network(&[4, 203, 0, 113])),
        phone: Some(EventSubject::Mailbox(mailbox)),
        ..AuditEvent::new(rig.clock.now(), action, outcome)
    };
    for _ in 0..20 {
        rig.audit.record(event(Action::Mail, "ada@example.org", Outcome::Ok));
        rig.audit.record(event(Action::Mail, "nobody@example.org", Outcome::Withheld));
    }
    rig.audit.record(event(Action::MailGuess, "ada@example.org", Outcome::Ok));
    let attack = rig.check().await.remove(0);
    assert_eq!(attack.kind, AttackKind::Mails);
    let AttackFigures { attempts, done, numbers, entered, .. } = attack.figures;
    assert_eq!((attempts, done, numbers, entered), (40, 20, 2, 1));
}

async fn an_attack_goes_on_through_a_pause_and_after_all_instances_were_down(database: TestDatabase) {
    let rig = rig(database).await;
    rig.stuffing(60);
    let id = rig.check().await.remove(0).id;
    rig.clock.advance(MINUTE * 9);
    rig.stuffing(60);
    let again = rig.check().await.remove(0);
    assert_eq!((again.id == id, again.figures.attempts), (true, 120));
    rig.clock.advance(MINUTE * 600);
    assert_eq!(rig.check().await, []);
    let past = rig.watch.since(NOON, 9).await.unwrap().remove(0);
    assert_eq!(past.seen_at, NOON.plus(MINUTE * 9), "it is not known to have lasted longer");
}

async fn what_is_usual_is_no_attack(database: TestDatabase) {
    let rig = rig(database).await;
    for day in 0..7_u32 {
        rig.clock.set(NOON.minus(MINUTE * 1440 * (7 - day)));
        rig.stuffing(300);
    }
    rig.clock.set(NOON);
    rig.stuffing(120);
    assert_eq!(rig.check().await, [], "300 an hour are usual, and 125 in five minutes are five times that");
    rig.stuffing(5);
    let figures = rig.check().await.remove(0).figures;
    assert_eq!((figures.usual, figures.recent), (300, 125));
}

async fn each_realm_is_watched_by_itself(database: TestDatabase) {
    let rig = rig(database).await;
    rig.stuffing(49);
    rig.stuffing_in("shop", 49);
    rig.stuffing_in("mail", 49);
    assert_eq!(rig.check().await, [], "none of them has fifty");
    let under_way = async || {
        let found = rig.check().await;
        found
            .into_iter()
            .map(|attack| (attack.kind, attack.realm, attack.figures.attempts))
            .collect::<Vec<_>>()
    };
    let at = |realm: &str, attempts| (AttackKind::Attempts, realm.to_owned(), attempts);
    rig.stuffing_in("shop", 1);
    assert_eq!(under_way().await, [at("shop", 50)]);
    rig.clock.advance(SECOND * 30);
    rig.stuffing_in("mail", 11);
    rig.stuffing(1);
    let all = under_way().await;
    assert_eq!(all.len(), 3, "{all:?}");
    assert!(
        all.contains(&at("mail", 60)) && all.contains(&(AttackKind::SignIns, String::new(), 50)),
        "{all:?}"
    );
    // One goes on while the others end.
    rig.clock.advance(MINUTE * 8);
    rig.stuffing_in("mail", 60);
    rig.check().await;
    rig.clock.advance(MINUTE * 9);
    assert_eq!(under_way().await, [at("mail", 120)]);
    rig.clock.advance(MINUTE * 9);
    assert_eq!(under_way().await, []);
    let told = rig.told().await;
    let ended = told.iter().filter(|(outcome, _)| *outcome == Outcome::Ended).count();
    assert_eq!((told.len(), ended), (6, 3), "{told:?}");
}

async fn what_is_usual_in_one_realm_is_an_attack_in_another(database: TestDatabase) {
    let rig = rig(database).await;
    for day in 0..7_u32 {
        rig.clock.set(NOON.minus(MINUTE * 1440 * (7 - day)));
        rig.stuffing_in("shop", 300);
    }
    rig.clock.set(NOON);
    rig.stuffing_in("shop", 120);
    rig.stuffing_in("mail", 120);
    let found = rig.check().await;
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].realm.as_str(), found[0].figures.usual), ("mail", 0));
    assert_eq!(found[0].figures.names, 120, "only its own");
}

async fn figures_of_realms_are_kept_as_long_as_others(database: TestDatabase) {
    let rig = rig(database).await;
    rig.stuffing(1);
    rig.stuffing_in("shop", 2);
    rig.stuffing_in("mail", 3);
    rig.audit.flush().await;
    let figures = async || {
        let sums = rig.audit.log().totals(Micros(0), rig.clock.now().plus(MINUTE)).await.unwrap();
        sums.into_iter().map(|sum| (sum.action, sum.realm, sum.count)).collect::<Vec<_>>()
    };
    let at = |realm: &str, count| (Action::Attempt, realm.to_owned(), count);
    assert_eq!(figures().await, [at("mail", 3), at("shop", 2), (Action::SignIn, String::new(), 1)]);
    rig.clock.advance(MINUTE * 1440 * 30);
    rig.audit.purge_sums(100).await.unwrap();
    assert_eq!(figures().await.len(), 3);
    rig.clock.advance(MINUTE * 2);
    rig.audit.purge_sums(100).await.unwrap();
    assert_eq!(figures().await, []);
}

async fn of_eight_instances_that_notice_an_attack_in_a_realm_one_tells(database: TestDatabase) {
    let rig = rig(database).await;
    rig.stuffing_in("shop", 60);
    rig.stuffing_in("mail", 60);
    rig.audit.flush().await;
    let checks: Vec<_> = (0..8)
        .map(|_| {
            let audit = instance(&rig.db, &rig.clock);
            tokio::spawn(async move {
                let found = AttackWatch::new(audit.clone()).check().await.unwrap();
                audit.flush().await;
                found.into_iter().map(|attack| (attack.id, attack.realm)).collect::<Vec<_>>()
            })
        })
        .collect();
    let mut ids = std::collections::HashSet::new();
    for check in checks {
        ids.extend(check.await.unwrap());
    }
    let mut realms: Vec<_> = ids.iter().map(|(_, realm)| realm.as_str()).collect();
    realms.sort_unstable();
    assert_eq!(realms, ["mail", "shop"], "one each, whoever looked");
    assert_eq!(rig.told().await.len(), 2);
}
