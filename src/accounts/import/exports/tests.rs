use super::super::*;
use super::*;
use crate::accounts::stored_hash::StoredHash;

const KEYCLOAK: &str = include_str!("../../../../tests/exports/keycloak.json");
const AUTH0: &str = include_str!("../../../../tests/exports/auth0.ndjson");
const FIREBASE: &str = include_str!("../../../../tests/exports/firebase.json");
const HASH_CONFIG: &str = include_str!("../../../../tests/exports/firebase-hash-config.txt");
const DJANGO: &str = include_str!("../../../../tests/exports/django.json");

fn read(source: &ExportSource, text: &str) -> ImportFile {
    ImportFile::read_export(text.as_bytes(), source, |phone| Phone::parse(phone, "CN")).unwrap()
}

fn firebase_source() -> ExportSource {
    ExportSource::Firebase(FirebaseHashConfig::parse(HASH_CONFIG).unwrap())
}

/// Whether the password opens the account of that name.
fn opens(file: &ImportFile, login: &str, password: &str) -> bool {
    let row = file.rows.iter().find(|row| row.login.as_str() == login).expect(login);
    let phc = row.password_hash.as_ref().unwrap();
    let stored = StoredHash::parse(phc.as_str(), &argon2::Params::DEFAULT).unwrap();
    let mut memory = vec![argon2::Block::new(); stored.function.blocks()];
    let StoredHash { function, salt, output, .. } = stored;
    function.compute(password.as_bytes(), &salt, output.len(), &mut memory) == output
}

fn names(file: &ImportFile) -> Vec<&str> {
    assert_eq!(file.mistakes.first, [], "of {file:?}");
    file.rows.iter().map(|row| row.login.as_str()).collect()
}

#[test]
fn a_realm_of_keycloak_is_read_whole_and_what_is_lost_is_named() {
    let file = read(&ExportSource::Keycloak, KEYCLOAK);
    assert_eq!(names(&file), ["user1", "admin1", "java-sha1", "java-sha512"]);
    for (login, password) in [
        ("user1", "user1"),
        ("admin1", "password"),
        ("java-sha1", "correct horse"),
        ("java-sha512", "correct horse"),
    ] {
        assert!(opens(&file, login, password), "{login}");
        assert!(!opens(&file, login, "another"), "{login}");
    }
    assert_eq!(
        file.left_out,
        [
            (4, "a passkey"),
            (4, "that it has to choose a new password; require one in the console"),
            (5, "the account, which is disabled"),
            (6, "the account, which has no password and no verified phone number to open it with"),
            (7, "the account of a client, not of a person"),
        ]
    );
    let [_, ada, app, unverified] = &file.rows[..] else { panic!() };
    assert_eq!(ada.profile, Profile::parse(Some("admin1@example.org"), true, Some("Ada Doe")).unwrap());
    assert_eq!(ada.phone.as_ref().unwrap().as_str(), "+8613800138000");
    assert_eq!(
        app.totp.as_ref().unwrap(),
        &TotpSecret::import(&BASE32_NOPAD.encode(b"4oZbWBhkHCvzSm1dQ9Yf")).unwrap()
    );
    assert_eq!((&unverified.profile, file.unverified_emails), (&Profile::default(), 1));
}

#[test]
fn hashes_and_users_of_auth0_are_merged_in_any_order() {
    let reversed: String = AUTH0.lines().rev().map(|line| format!("{line}\n")).collect();
    for (text, accounts, left_out) in [
        (AUTH0, ["countess", "bob@example.org"], [3, 4]),
        (&reversed, ["bob@example.org", "countess"], [1, 2]),
    ] {
        let file = read(&ExportSource::Auth0, text);
        assert_eq!(names(&file), accounts);
        for login in accounts {
            assert!(opens(&file, login, "correct horse"));
        }
        let left: Vec<_> = file.left_out.iter().map(|(account, _)| *account).collect();
        assert_eq!(left, left_out);
        assert_eq!((file.unproven.len(), file.unverified_emails), (1, 1));
        let ada = file.rows.iter().find(|row| row.login.as_str() == "countess").unwrap();
        assert_eq!(ada.profile, Profile::parse(Some("ada@example.org"), true, Some("Ada Doe")).unwrap());
        assert_eq!(ada.phone.as_ref().unwrap().as_str(), "+8613800138001");
    }
}

#[test]
fn users_of_firebase_are_read_with_the_parameters_of_their_project() {
    let file = read(&firebase_source(), FIREBASE);
    assert_eq!(names(&file), ["ada@example.org", "zt9ewc5ryblkmn3opq7suv1xa2b4"], "one has a number only");
    assert!(
        opens(&file, "ada@example.org", "user1password") && !opens(&file, "ada@example.org", "user1passwore")
    );
    assert_eq!((file.unproven.len(), file.left_out.len()), (0, 2));
    let stored = file.rows[0].password_hash.as_ref().unwrap().as_str();
    assert!(
        !stored.contains("jxspr8Ki0RYycVU8zykbdLGjFQ3McFUH0uiiTvC8pVMX"),
        "the project's key is not stored"
    );
}

#[test]
fn users_of_django_are_found_in_any_dump_and_model() {
    for dump in [DJANGO, &DJANGO.replace('\n', " "), &DJANGO.replace("auth.user", "shop.customer")] {
        let file = read(&ExportSource::Django, dump);
        assert_eq!(names(&file), ["ada", "bob", "carol@example.org", "dave", "erin"]);
        for login in names(&file) {
            assert!(opens(&file, login, "correct horse"), "{login}");
        }
        assert_eq!(file.left_out.iter().map(|(account, _)| *account).collect::<Vec<_>>(), [2, 7, 8]);
        assert_eq!((file.unproven.len(), file.unverified_emails), (1, 5), "Django verifies none");
        assert_eq!(file.rows[0].profile.name_text(), Some("Ada Doe"));
    }
}

#[test]
fn second_factors_in_a_dump_of_django_are_not_lost_without_a_word() {
    let devices = r#"[{"model":"otp_totp.totpdevice","pk":1,"fields":{"user":1,"key":"00ff"}},
        {"model":"mfa.authenticator","pk":1,"fields":{"user":1,"type":"totp","data":{}}},
        {"model":"otp_static.staticdevice","pk":1,"fields":{"user":1}}]"#;
    let file = read(&ExportSource::Django, devices);
    assert_eq!(file.left_out, [1, 2].map(|entry| (entry, "a second factor of django-otp or allauth")));
}

/// The field of the one mistake, and its reason.
fn mistake(source: &ExportSource, text: &str) -> (&'static str, String) {
    let file = read(source, text);
    assert_eq!((file.rows.len(), file.mistakes.count()), (0, 1), "{text}: {:?}", file.mistakes);
    let ImportMistake { line, field, reason } = &file.mistakes.first[0];
    assert_eq!((*line, file.unit), (1, ImportUnit::Account));
    (*field, reason.clone())
}

#[test]
fn what_cannot_be_read_is_named_by_account_and_field_and_never_by_value() {
    let keycloak = |credential: &str| {
        format!(r#"{{"users":[{{"username":"a1","enabled":true,"credentials":[{credential}]}}]}}"#)
    };
    let embedded = |kind: &str, secret: &str, data: &str| {
        keycloak(&json!({ "type": kind, "secretData": secret, "credentialData": data }).to_string())
    };
    let hash = r#"{"value":"c2l4dGVlbiBieXRlcyAhIQ==","salt":"c2l4dGVlbiBieXRlcyAhIQ=="}"#;
    let otp = r#"{"value":"4oZbWBhkHCvzSm1dQ9Yf"}"#;
    for (text, field, said) in [
        (keycloak(r#"{"type":"password","value":"hunter2"}"#), "credentials", "a password itself"),
        (keycloak(r#"{"type":"password"}"#), "credentials", "cannot be read"),
        (embedded("password", "hunter2", "{}"), "credentials", "cannot be read"),
        (
            embedded("password", hash, r#"{"hashIterations":3,"algorithm":"hunter2"}"#),
            "credentials",
            "Keycloak's own",
        ),
        (
            embedded("password", hash, r#"{"hashIterations":3,"algorithm":"argon2"}"#),
            "credentials",
            "cannot be read",
        ),
        (
            embedded("password", hash, r#"{"hashIterations":9000000,"algorithm":"pbkdf2"}"#),
            "password_hash",
            "iterations of PBKDF2",
        ),
        (
            embedded("otp", otp, r#"{"subType":"totp","digits":8,"period":30,"algorithm":"HmacSHA1"}"#),
            "totp",
            "6 digits",
        ),
        (embedded("otp", otp, r#"{"subType":"hotp","digits":6,"algorithm":"HmacSHA1"}"#), "totp", "totp"),
        (embedded("otp", "hunter2", "{}"), "totp", "cannot be read"),
        (r#"{"users":["hunter2"]}"#.to_owned(), "line", "is not a JSON object"),
        (r#"{"users":[{"enabled":true}]}"#.to_owned(), "login", "is missing"),
    ] {
        let (named, reason) = mistake(&ExportSource::Keycloak, &text);
        assert_eq!(named, field, "{text}: {reason}");
        assert!(reason.contains(said) && !reason.contains("hunter2"), "{text}: {reason}");
    }
    let short = FIREBASE.replace("lSrfV15cpx95/sZS2W9c9Kp6i/LVgQNDNC/qzrCnh1S", "");
    assert_eq!(read(&firebase_source(), &short).mistakes.first[0].field, "passwordHash");
    let twice =
        format!("{AUTH0}{}", AUTH0.lines().next().unwrap().replace("82973", "82974").replace("ada@", "bob@"));
    assert_eq!(
        read(&ExportSource::Auth0, &twice).mistakes.first[0].reason,
        "is the same name as in account 2"
    );
}

#[test]
fn an_account_that_is_left_out_keeps_no_name() {
    let social = r#"{"localId":"a","email":"ada@example.com"}"#;
    let file = read(&firebase_source(), &FIREBASE.replacen('[', &format!("[{social},"), 1));
    assert_eq!(names(&file)[0], "ada@example.org");
    let named: Vec<_> = file.left_out.iter().map(|(account, _)| *account).collect();
    assert_eq!(named, [1, 4, 5]);
}

#[test]
fn a_file_that_is_no_json_is_refused_where_it_breaks() {
    for (text, said) in [("{\n  \"users\": [\n", "line 3"), ("hunter2", "line 1"), ("[1,]", "line 1")] {
        let error = ImportFile::read_export(text.as_bytes(), &ExportSource::Django, |phone| {
            Phone::parse(phone, "CN")
        });
        let error = error.unwrap_err().to_string();
        assert!(error.contains(said) && !error.contains("hunter2"), "{error}");
    }
    // Nested deeper than any account is.
    let deep = "[".repeat(1_000_000);
    assert!(
        ImportFile::read_export(deep.as_bytes(), &ExportSource::Django, |phone| Phone::parse(phone, "CN"))
            .is_err()
    );
}

#[test]
fn what_an_export_is_wrapped_in_does_not_matter() {
    let list = |users: usize| vec![r#"{"username":"a","enabled":true}"#; users].join(",");
    for (text, left_out) in [
        (format!(r#"{{"realm":"one","users":[{}]}}"#, list(2)), 2),
        (format!(r#"[{{"realm":"one","users":[{}]}},{{"realm":"two","users":[{}]}}]"#, list(1), list(2)), 3),
        (format!("{{\"users\":[{}]}}\n{{\"users\":[{}]}}", list(1), list(3)), 4),
        (format!("\u{feff}[{}]", list(2)), 2),
        (r#"{"realm":"without its users","enabled":true}"#.to_owned(), 0),
    ] {
        let found = entries(&ExportSource::Keycloak, text.as_bytes()).unwrap();
        assert_eq!(found.len(), left_out, "{text}");
    }
}

#[test]
fn hash_parameters_are_read_as_the_console_shows_them_and_as_json() {
    let parsed = FirebaseHashConfig::parse(HASH_CONFIG).unwrap();
    let json = r#"{
        "algorithm": "SCRYPT",
        "base64_signer_key": "jxspr8Ki0RYycVU8zykbdLGjFQ3McFUH0uiiTvC8pVMXAn210wjLNmdZJzxUECKbm0QsEmYUSDzZvpjeJ9WmXA==",
        "base64_salt_separator": "Bw==",
        "rounds": 8,
        "mem_cost": 14
    }"#;
    assert!(FirebaseHashConfig::parse(json).unwrap() == parsed);
    for (from, to, said) in [
        ("rounds: 8", "", "rounds is missing"),
        ("rounds: 8", "rounds: eight", "rounds is not a number"),
        ("Bw==", "!", "base64_salt_separator is not base64"),
        ("SCRYPT", "BCRYPT", "algorithm must be SCRYPT"),
    ] {
        assert_eq!(FirebaseHashConfig::parse(&HASH_CONFIG.replace(from, to)).err().as_deref(), Some(said));
    }
}
