//! `[sms.country.XX]` and `challenge_prefixes`: what is asked of a number by where it is.

use serde_json::json;

use crate::relay::Logto;
use crate::support::app::{ANSWER, Client, Store, TestApp, on_both_stores};
use crate::verify::Program;

const TOML: &str = "[sms]\nchallenge_prefixes = ['+86170']\n[sms.country.SG]\nmode = 'challenge'\n\
                    [sms.country.US]\nmode = 'block'\n[sms.country.CN]\nmode = 'allow'\n";
const PLAIN: &str = "+8613800138000";
/// Of a virtual operator.
const LISTED: &str = "+8617012345678";
const SINGAPORE: &str = "+6581234567";
/// In New Jersey.
const NEWARK: &str = "+12015550123";
/// The same calling code, another country.
const TORONTO: &str = "+14165550123";

on_both_stores!(
    a_country_or_prefix_can_ask_for_a_challenge_each_time,
    a_country_can_be_left_out_by_itself,
    programs_meet_the_same,
    the_other_number_of_a_phone_is_no_way_round,
);

/// Solves the challenge that is asked for.
async fn solved(client: &Client, phone: &str) -> u16 {
    let asked = client.ask_code(phone, "login").await;
    let captcha = json!({ "id": asked.body["captcha"]["id"], "answer": ANSWER });
    client.call("/sms/codes", json!({ "phone": phone, "purpose": "login", "captcha": captcha })).await.status
}

async fn a_country_or_prefix_can_ask_for_a_challenge_each_time(store: Store) {
    let app = TestApp::with(store, TOML).await;
    let client = app.client();
    assert_eq!(client.ask_code(PLAIN, "login").await.status, 202);
    for phone in [LISTED, SINGAPORE] {
        for purpose in ["login", "register"] {
            let asked = client.ask_code(phone, purpose).await;
            assert_eq!(asked.problem(), "captcha-required", "{}", asked.text);
            assert!(client.codes(phone).await.is_empty(), "{phone}");
        }
        assert_eq!(solved(&client, phone).await, 202);
        assert_eq!(client.codes(phone).await.len(), 1);
        assert_eq!(client.ask_code(phone, "login").await.problem(), "captcha-required", "each time");
    }
}

async fn a_country_can_be_left_out_by_itself(store: Store) {
    let app = TestApp::with(store, TOML).await;
    let client = app.client();
    let refused = client.ask_code(NEWARK, "login").await;
    assert_eq!((refused.status, refused.problem()), (422, "country-not-allowed"), "{}", refused.text);
    assert_eq!(client.ask_code(TORONTO, "login").await.status, 202);
}

async fn programs_meet_the_same(store: Store) {
    let app = TestApp::with(store, TOML).await;
    let boss = app.sign_in_admin("boss").await;
    let shop = Program::of(&app, &boss, "verify:shop").await;
    assert_eq!(shop.send(SINGAPORE).await.problem(), "captcha-required");
    assert_eq!(shop.send(NEWARK).await.problem(), "country-not-allowed");
    assert_eq!(shop.send(PLAIN).await.status, 202);
    // It can show no challenge.
    let relay = Logto::of(&app, &boss, "relay:idp").await;
    assert_eq!(relay.send(SINGAPORE, "012345").await.status, 200);
}

/// Palestine's mobile numbers, which are reached under Israel's code, too.
async fn the_other_number_of_a_phone_is_no_way_round(store: Store) {
    for (mode, answer) in [("block", "country-not-allowed"), ("challenge", "captcha-required")] {
        let app = TestApp::with(store, &format!("[sms.country.PS]\nmode = '{mode}'\n")).await;
        for phone in ["+970599123456", "+972599123456"] {
            assert_eq!(app.client().ask_code(phone, "login").await.problem(), answer, "{phone}");
        }
    }
}
