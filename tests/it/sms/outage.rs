//! While the window store is out, nothing is sent and nothing is compared; afterwards everything is as
//! before.

use super::rig::*;
use gatehouse::codes::*;
use gatehouse::denied::Denied;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_its_store_nothing_is_sent_or_compared_and_it_comes_back_by_itself() {
    let mut rig = Rig::new(Store::Redis, "[limits.sms-phone]\nrules = [{ max = 2, window = '1h' }]").await;
    let (instance, phone) = (rig.instance().await, phone());
    sent(instance.send(&phone).await);
    let code = rig.last_code();
    rig.redis.as_mut().expect("a server").kill();
    for _ in 0..20 {
        let answer = instance.send(&phone).await;
        assert!(
            matches!(answer, SendOutcome::Denied(Denied::Unavailable { retry_after }) if !retry_after.is_zero()),
            "{answer:?}"
        );
        let answer = instance.check(&phone, &code).await;
        assert!(
            matches!(answer, CheckOutcome::Denied(Denied::Unavailable { retry_after }) if !retry_after.is_zero()),
            "{answer:?}"
        );
    }
    assert_eq!(rig.sent_to(&phone), 1);
    assert_eq!(instance.ledger().await.len(), 1);
    rig.restart_redis(&instance).await;
    assert!(matches!(instance.check(&phone, &code).await, CheckOutcome::Right(_)), "the code outlived it");
    sent(instance.send(&phone).await);
    assert_eq!(throttled(instance.send(&phone).await).0, "sms-phone");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_whose_mark_cannot_be_read_sends_nothing() {
    let rig = Rig::new(Store::Redis, "").await;
    let (instance, phone) = (rig.instance().await, phone());
    assert!(instance.codes.rebuild_windows(instance.live()).await);
    let server = rig.redis.as_ref().expect("a server");
    let marks: Vec<String> = redis::cmd("KEYS").arg("gh:complete-*").query(&mut server.connection()).unwrap();
    assert_eq!(marks.len(), Channel::ALL.len());
    for mark in &marks {
        redis::cmd("SET").arg(mark).arg("none").query::<()>(&mut server.connection()).unwrap();
    }
    assert!(matches!(instance.send(&phone).await, SendOutcome::Denied(Denied::Unavailable { .. })));
    assert!(rig.sent().is_empty());
    assert_eq!(instance.counted("sms-phone", phone.as_str().as_bytes()).await, 0, "given back");
}
