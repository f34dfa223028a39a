use super::*;

fn parse(text: &str) -> Result<TokenScopes, ScopesError> {
    TokenScopes::parse(text.split_whitespace())
}

#[test]
fn scopes_are_names_of_custom_limits_or_all_of_them() {
    let two = parse("reply  leave-campus reply").unwrap();
    assert_eq!(two.to_string(), "leave-campus reply");
    assert!(two.hold("reply") && !two.hold("custom.reply") && !two.hold("*"));
    assert!(parse("*").unwrap().hold("reply"));
    assert_eq!(parse(""), Err(ScopesError::Empty));
    for text in ["* reply", "Reply", "custom.reply", "a,b", "reply é", "limits:everything", "limits: read"] {
        assert_eq!(parse(text), Err(ScopesError::NoName), "{text}");
    }
    let many = |count: usize| (0..count).map(|n| format!("l{n}")).collect::<Vec<_>>().join(" ");
    assert!(parse(&many(64)).is_ok());
    assert_eq!(parse(&many(65)), Err(ScopesError::TooMany));
}

#[test]
fn what_is_no_scope_is_named_with_the_nearest_one() {
    let limits = ["reply", "leave-campus"];
    let requested = |text: &str| TokenScopes::requested(&text.split(' ').collect::<Vec<_>>(), &limits);
    for fine in ["reply *", "reply leave-campus", "*", "guard:shop verify:shop limits:read"] {
        assert_eq!(requested(fine).is_ok(), fine != "reply *", "{fine}");
    }
    for (text, typed, near) in [
        ("guard shop", "guard shop", Some("guard:shop")),
        ("guard: shop", "guard: shop", Some("guard:shop")),
        ("reply verify shop", "verify shop", Some("verify:shop")),
        ("gaurd:shop", "gaurd:shop", Some("guard:shop")),
        ("Guard:Shop", "Guard:Shop", Some("guard:shop")),
        ("guard.shop", "guard.shop", Some("guard:shop")),
        ("relay-logto", "relay-logto", Some("relay:logto")),
        ("repyl", "repyl", Some("reply")),
        ("leave_campus", "leave_campus", Some("leave-campus")),
        ("limits:reed", "limits:reed", Some("limits:read")),
        ("zzz", "zzz", None),
        ("guard:", "guard:", None),
        ("", "", None),
    ] {
        let (typed, nearest) = (typed.to_owned(), near.map(str::to_owned));
        assert_eq!(requested(text), Err(ScopesError::Unknown { typed, nearest }), "{text}");
    }
    let as_one = TokenScopes::requested(&["guard shop"], &limits);
    assert!(matches!(as_one, Err(ScopesError::Unknown { nearest: Some(near), .. }) if near == "guard:shop"));
    let long = "é".repeat(100_000);
    let Err(ScopesError::Unknown { typed, .. }) = TokenScopes::requested(&[&long], &limits) else { panic!() };
    assert_eq!(typed.chars().count(), 80);
    assert_eq!(TokenScopes::requested(&["reply"; 65], &limits), Err(ScopesError::TooMany));
}

#[test]
fn a_token_asks_for_the_login_of_one_realm() {
    let shop = parse("reply guard:shop").unwrap();
    assert_eq!(shop.program(ProgramScope::Guard).map(Realm::as_str), Some("shop"));
    assert!(shop.hold("reply") && !shop.hold("shop") && !shop.hold("guard:shop") && !shop.open_any());
    assert_eq!(parse(&shop.to_string()), Ok(shop));
    let alone = parse("guard:mail-2").unwrap();
    assert!(!alone.hold("mail-2") && alone.to_string() == "guard:mail-2");
    assert_eq!(parse("*").unwrap().program(ProgramScope::Guard), None);
    assert_eq!(parse("guard:shop guard:mail"), Err(ScopesError::TooManyPrograms));
    for text in ["guard:", "guard:Shop", "guard:*", "guard:a/b", "guard:a:b"] {
        assert_eq!(parse(text), Err(ScopesError::NoName), "{text}");
    }
}

#[test]
fn a_token_has_codes_sent_for_one_program() {
    let shop = parse("verify:shop guard:mail reply").unwrap();
    assert_eq!(shop.program(ProgramScope::Verify).map(Realm::as_str), Some("shop"));
    assert_eq!(
        (shop.program(ProgramScope::Guard).map(Realm::as_str), shop.to_string()),
        (Some("mail"), "reply guard:mail verify:shop".into())
    );
    assert_eq!(parse(&shop.to_string()), Ok(shop));
    assert_eq!(
        (
            parse("*").unwrap().program(ProgramScope::Verify),
            parse("guard:shop").unwrap().program(ProgramScope::Verify)
        ),
        (None, None)
    );
    assert_eq!(parse("verify:shop verify:mail"), Err(ScopesError::TooManyPrograms));
    let relay = parse("relay:logto").unwrap();
    assert_eq!(
        (relay.program(ProgramScope::Relay).map(Realm::as_str), relay.program(ProgramScope::Verify)),
        (Some("logto"), None)
    );
    assert_eq!(
        (relay.to_string(), parse("relay:a relay:b")),
        ("relay:logto".into(), Err(ScopesError::TooManyPrograms))
    );
    for text in ["verify:", "verify:Shop", "verify:*", "verify:a:b", "relay:", "relay:*"] {
        assert_eq!(parse(text), Err(ScopesError::NoName), "{text}");
    }
}

#[test]
fn a_part_of_the_admin_api_is_named_and_never_included_in_all() {
    let all = parse("*").unwrap();
    assert!(!all.open_any() && AdminScope::VARIANTS.iter().all(|scope| !all.open(*scope)));
    let both = parse("limits:write * events:read").unwrap();
    assert_eq!(both.to_string(), "* limits:write events:read");
    assert_eq!(parse(&both.to_string()), Ok(both.clone()));
    assert!(both.open(AdminScope::LimitsWrite) && !both.open(AdminScope::LimitsRead) && both.hold("reply"));
    let one = parse("events:read").unwrap();
    assert!(one.open_any() && !one.hold("events:read") && !one.hold("reply"));
    assert!(AdminScope::VARIANTS.iter().all(|scope| scope.into_str().parse() == Ok(*scope)));
}
