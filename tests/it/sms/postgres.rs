//! What only PostgreSQL can show: instances that share a database over a network.

use super::http::NUMBER;
use super::rig::*;
use crate::support::app::TestApp;
use gatehouse::sms::*;

#[tokio::test]
async fn a_code_is_sent_and_opens_on_postgresql() {
    let app = TestApp::on_postgres(Store::Memory, "").await;
    let client = app.client();
    let code = client.code(NUMBER, "login").await;
    let body = serde_json::json!({ "phone": NUMBER, "code": code });
    assert_eq!(client.call("/sms/login", body).await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_an_hour_go_out_over_two_instances_whatever_the_store_forgets() {
    let rig =
        Rig::on_postgres(Store::Memory, "[limits.sms-phone]\nrules = [{ max = 5, window = '1h' }]").await;
    let (one, other, phone) = (rig.instance().await, rig.instance().await, phone());
    // Each has a store of its own: the ledger alone knows of both.
    let sendings = all((0..40).map(|turn| {
        let (instance, phone) = (if turn % 2 == 0 { one.clone() } else { other.clone() }, phone.clone());
        async move { instance.codes.send(instance.live(), ask(&phone, &address())).await }
    }))
    .await;
    assert_eq!(rig.sent_to(&phone), 5);
    assert_eq!(sendings.iter().filter(|sending| matches!(sending, Ok(Sending::Sent(_)))).count(), 5);
}
