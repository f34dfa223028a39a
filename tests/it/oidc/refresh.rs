//! Refresh tokens: a client whose answer was lost goes on, and who has a copy does not.

use std::time::Duration;

use futures_util::future::join_all;

use super::*;
use crate::support::app::on_both_stores;

on_both_stores! {
    sixty_four_at_once_get_one_successor,
    a_late_repeat_is_answered_a_few_times_a_day,
    whoever_is_two_behind_ends_the_grant,
    a_thief_in_step_is_found_within_a_day,
    lost_answers_sign_nobody_out,
}

async fn sixty_four_at_once_get_one_successor(store: Store) {
    let app = start(on(store)).await;
    let (_, _, token) = granted(&app, "ada").await;
    // Whom a busy database had wait for too long sends it again, as the answer says.
    let patiently = async || loop {
        let answer = refresh(&app, &token).await;
        if answer.status != 503 {
            return answer;
        }
    };
    let answers = join_all((0..64).map(|_| patiently())).await;
    let mut successors: Vec<String> = answers.iter().map(|answer| tokens(answer).1).collect();
    successors.sort_unstable();
    successors.dedup();
    assert_eq!(successors.len(), 1);
    assert_ne!(successors[0], token);
    let (access, _) = tokens(&refresh(&app, &successors[0]).await);
    assert_eq!(userinfo(&app.url, &access).await.status, 200);
}

async fn a_late_repeat_is_answered_a_few_times_a_day(store: Store) {
    let app = start(on(store)).await;
    let (_, _, first) = granted(&app, "ada").await;
    let (_, second) = tokens(&refresh(&app, &first).await);
    for _ in 0..3 {
        app.advance(Duration::from_secs(61));
        assert_eq!(tokens(&refresh(&app, &first).await).1, second, "the next one is unused");
    }
    app.advance(Duration::from_secs(61));
    let fourth = refresh(&app, &first).await;
    assert_eq!((fourth.status, &fourth.body["error"]), (400, &"invalid_grant".into()));
    assert_eq!(refresh(&app, &second).await.status, 400, "the grant has ended");
    // On another day, so many again.
    let (_, _, first) = granted(&app, "boris").await;
    let (_, second) = tokens(&refresh(&app, &first).await);
    for hours in [1, 1, 1, 24] {
        app.advance(Duration::from_secs(hours * 60 * 60 + 1));
        assert_eq!(tokens(&refresh(&app, &first).await).1, second);
    }
}

async fn whoever_is_two_behind_ends_the_grant(store: Store) {
    let app = start(on(store)).await;
    let (_, _, first) = granted(&app, "ada").await;
    let (access, second) = tokens(&refresh(&app, &first).await);
    let (_, third) = tokens(&refresh(&app, &second).await);
    assert_eq!(refresh(&app, &first).await.status, 400);
    assert_eq!(refresh(&app, &third).await.status, 400);
    assert_eq!(userinfo(&app.url, &access).await.status, 401);
}

async fn a_thief_in_step_is_found_within_a_day(store: Store) {
    let app = start(on(store)).await;
    let (_, _, mut token) = granted(&app, "ada").await;
    let mut generations = 0;
    loop {
        let owner = refresh(&app, &token).await;
        let thief = refresh(&app, &token).await;
        if thief.status != 200 {
            break;
        }
        (_, token) = tokens(&owner);
        assert_eq!(tokens(&thief).1, token);
        generations += 1;
        app.advance(Duration::from_secs(600));
    }
    assert_eq!(generations, 24);
}

/// One answer in twenty is lost, and its client asks again: at once, or, three times a day, later. `OIDC_GRANTS=200` makes
/// it 10,000 refreshes, which take a debug build two minutes.
async fn lost_answers_sign_nobody_out(store: Store) {
    const OF_BROWSER: usize = 10;
    const REFRESHES: usize = 50;
    let count = std::env::var("OIDC_GRANTS").map_or(20, |text| text.parse().expect("a number"));
    let app = start(on(store).without(&["register-address"])).await;
    let mut grants = Vec::new();
    for number in 0..count / OF_BROWSER {
        let browser = browser(&app, &format!("user-{number}")).await;
        for _ in 0..OF_BROWSER {
            grants.push(tokens(&exchange(&app, &code(&browser, &[]).await).await).1);
        }
    }
    let http = http().build().unwrap();
    let refresh = async |token: &str| {
        let request = http.post(format!("{}/oauth/token", app.url)).basic_auth("wiki", Some(SECRET));
        let fields = [("grant_type", "refresh_token"), ("refresh_token", token)];
        Answer::read(request.form(&fields).send().await.unwrap()).await
    };
    let mut lost = 0;
    for round in 0..REFRESHES {
        app.advance(Duration::from_secs(1800));
        let mut answers = join_all(grants.iter().map(|token| refresh(token))).await;
        app.advance(Duration::from_secs(if round % 2 == 0 { 1 } else { 120 }));
        for (number, token) in grants.iter_mut().enumerate() {
            if (round * 31 + number * 17) % 20 == 0 {
                lost += 1;
                let answer = refresh(token).await;
                assert_eq!(tokens(&answer).1, tokens(&answers[number]).1, "the same successor");
                answers[number] = answer;
            }
            *token = tokens(&answers[number]).1;
        }
    }
    assert_eq!(lost, grants.len() * REFRESHES / 20);
}
