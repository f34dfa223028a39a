//! Brakes of our pages and of each program: what one's messages trip stops no other's.

use super::braking::{NO_BUDGETS, NO_PREFIX, braked_block, challenged, settled, solved};
use super::rig::*;
use gatehouse::clock::Micros;
use gatehouse::codes::*;
use gatehouse::message::*;
use gatehouse::sms::*;

on_each_store! {
    what_is_sent_at_our_pages_brakes_no_program_nor_one_program_another,
    a_programs_brake_tells_no_numbers_apart_and_spares_those_proven_there,
}

fn verify(program: &str) -> ProgramPurpose {
    ProgramPurpose::new(program, "default").unwrap()
}

pub(super) async fn verified(instance: &Instance, program: &str, phone: &Phone, solved: bool) -> SendOutcome {
    let (purpose, address) = (verify(program), address());
    let network = &address[..6];
    let asked = RequestedMessage { solved, ..RequestedMessage::new(phone.clone(), purpose, "en") };
    let asked = asked.asked_from(&address, network);
    instance.codes.send(instance.live(), asked).await.unwrap()
}

pub(super) async fn relayed(instance: &Instance, phone: &Phone, once: &str) -> SendOutcome {
    let (relay, code) = (MessagePurpose::relayed("idp").unwrap(), MessageCode::relayed("012345").unwrap());
    let message = RequestedMessage::new(phone.clone(), relay, "en");
    let asked = RequestedMessage { code: Some(code), once: Some(once.to_owned()), ..message };
    instance.codes.relay(instance.live(), asked).await.unwrap()
}

async fn what_is_sent_at_our_pages_brakes_no_program_nor_one_program_another(store: Store) {
    let rig = Rig::new(store, NO_PREFIX).await;
    let (instance, crowd) = braked_block(&rig).await;
    for _ in 0..10 {
        assert!(!sent(verified(&instance, "shop", &neighbour(&crowd), false).await).short);
    }
    assert_eq!(challenged(verified(&instance, "shop", &neighbour(&crowd), false).await).0, "sms-brake");
    for _ in 0..20 {
        assert!(!sent(verified(&instance, "shop", &neighbour(&crowd), true).await).short);
    }
    assert!(sent(verified(&instance, "shop", &neighbour(&crowd), true).await).short);
    assert!(!sent(verified(&instance, "mail", &neighbour(&crowd), false).await).short, "another program");
    assert!(!sent(relayed(&instance, &neighbour(&crowd), "one").await).short, "a relay");
    let ledger = instance.codes.ledger();
    let scopes = async || {
        let mut all: Vec<_> = ledger.brakes().await.unwrap().into_iter().map(|brake| brake.program).collect();
        all.sort();
        all
    };
    assert_eq!(scopes().await, [None, Some("verify:shop".to_owned())]);
    assert!(ledger.lift(crowd.block(), Some("verify:shop"), "admin").await.unwrap());
    assert!(!sent(verified(&instance, "shop", &neighbour(&crowd), false).await).short);
    assert!(sent(solved(&instance, &neighbour(&crowd)).await).short, "ours is still on");
    assert_eq!(scopes().await, [None]);
}

async fn a_programs_brake_tells_no_numbers_apart_and_spares_those_proven_there(store: Store) {
    let rig = Rig::new(store, NO_BUDGETS).await;
    let (instance, crowd) = (rig.instance().await, phone());
    let prove = async |program: &str, phone: &Phone| {
        let id = sent(verified(&instance, program, phone, true).await).id.unwrap().to_string();
        let code = rig.last_code();
        let checked = instance.codes.check_verification(instance.live(), program, &id, &code).await.unwrap();
        assert_eq!(checked, VerificationOutcome::Approved);
    };
    let [old, elsewhere, owned, young] = [(); 4].map(|()| neighbour(&crowd));
    prove("shop", &old).await;
    prove("mail", &elsewhere).await;
    rig.owners.has(&owned, Micros(0));
    rig.advance(HOUR + MICRO);
    prove("shop", &young).await;
    let mut asked = 0;
    while !sent(verified(&instance, "shop", &neighbour(&crowd), true).await).short {
        asked += 1;
    }
    assert_eq!(asked, 38, "half of which is 19, beside the one that came back");
    settled(&instance).await;
    rig.advance(MINUTE);
    // From here on this instance knows the brake.
    challenged(verified(&instance, "shop", &neighbour(&crowd), false).await);
    let before = rig.sent().len();
    let mut told = Vec::new();
    for phone in [&old, &elsewhere, &owned, &young, &neighbour(&crowd)] {
        let (rows, codes) = (instance.ledger().await.len(), super::shortage::codes(&instance).await);
        let writes = super::shortage::store_writes(&rig);
        let refused = challenged(verified(&instance, "shop", phone, false).await);
        let SendReceipt { id, expires_in, resend_after, confirmed, short } =
            sent(verified(&instance, "shop", phone, true).await);
        settled(&instance).await;
        let writes = super::shortage::store_writes(&rig).zip(writes);
        told.push((
            (refused, id.is_some(), expires_in, resend_after, confirmed, short),
            instance.ledger().await.len() - rows,
            super::shortage::codes(&instance).await - codes,
            writes.map(|(now, then)| [now[0] - then[0], now[1] - then[1]]),
        ));
    }
    assert!(told.iter().all(|other| *other == told[0] && other.0.5), "{told:?}");
    assert_eq!(rig.sent().len() - before, 1);
    assert_eq!([&old, &young].map(|phone| rig.sent_to(phone)), [2, 1], "only what was proven before");
}
