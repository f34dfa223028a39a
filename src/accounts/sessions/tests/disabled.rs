//! Sessions beside a password that was disabled.

use super::*;

on_both_databases!(
    a_disabled_password_starts_sessions_where_it_is_not_disabled,
    a_password_that_was_disabled_meanwhile_starts_no_session_and_a_code_does,
);

async fn a_disabled_password_starts_sessions_where_it_is_not_disabled(database: TestDatabase) {
    let bench = bench(database).await;
    let alice = bench.accounts.by_id(bench.alice).await.unwrap().unwrap();
    let client = SignInClient::new(IpAddr::from([203, 0, 113, 7]), "Firefox");
    let starts = async |by| bench.sessions.begin(&alice, &client, by, None).await.unwrap().token().is_some();
    let [home, work] = [7, 8].map(|number| DeviceId::from([number; 16]));
    bench.accounts.count_device_failure(&alice, home, 1, 1).await.unwrap();
    assert!(!starts(FirstFactor::PasswordFrom(home)).await, "spent");
    assert!(starts(FirstFactor::PasswordFrom(work)).await && starts(FirstFactor::Password).await);
    bench.accounts.count_failure(&alice, 1, 1).await.unwrap();
    assert!(!starts(FirstFactor::Password).await, "as a stranger");
    assert!(starts(FirstFactor::PasswordFrom(work)).await && starts(FirstFactor::Code).await);
    assert!(!starts(FirstFactor::PasswordFrom(home)).await, "nothing opens but the ways back");
}

async fn a_password_that_was_disabled_meanwhile_starts_no_session_and_a_code_does(database: TestDatabase) {
    let bench = bench(database).await;
    let verified = bench.accounts.by_id(bench.alice).await.unwrap().unwrap();
    let other = bench.start(bench.alice).await;
    bench.accounts.count_failure(&verified, 1, 1).await.unwrap();
    assert!(bench.start_for(&verified).await.is_none());
    assert!(bench.session(&other).await.is_some(), "those that run go on");
    let client = SignInClient::new(IpAddr::from([203, 0, 113, 7]), "Firefox");
    assert!(
        bench.sessions.begin(&verified, &client, FirstFactor::Code, None).await.unwrap().token().is_some()
    );
    bench.accounts.enable_password(bench.alice).await.unwrap();
    assert!(bench.start_for(&verified).await.is_some());
}
