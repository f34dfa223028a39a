use super::*;

const HASH: &str = "$2b$04$9GAjsXD.2ikRqsIemgkUBe4fAvHKSR3hpyOBv/UIWlB5zhv88oRc6";

fn read(text: impl AsRef<[u8]>) -> ImportFile {
    ImportFile::read(text.as_ref(), |phone| Phone::parse(phone, "CN")).unwrap()
}

fn row(login: &str) -> String {
    format!(r#"{{"login":"{login}","password_hash":"{HASH}"}}"#)
}

/// What is wrong with one line: the field and the reason.
fn mistake(line: &str) -> (&'static str, String) {
    let mut file = read(line);
    assert_eq!((file.rows.len(), file.mistakes.count()), (0, 1), "{line}: {:?}", file.mistakes);
    let ImportMistake { line: 1, field, reason } = file.mistakes.first.remove(0) else { panic!("{line}") };
    (field, reason)
}

#[test]
fn a_row_is_read_as_registration_reads_it() {
    let phone = r#""phone":"138 0013 8000","phone_verified":true"#;
    let file = read(format!("{{\"login\":\"ＡＬＩＣＥ\",\"password_hash\":\"{HASH}\",{phone}}}\n"));
    assert_eq!(file.mistakes.count(), 0);
    let [row] = &file.rows[..] else { panic!("{:?}", file.rows) };
    assert_eq!((row.line, row.login.as_str()), (1, "alice"));
    assert_eq!(row.phone.as_ref().unwrap().as_str(), "+8613800138000");
    assert!(row.password_hash.as_ref().unwrap().as_str().ends_with(HASH));
}

#[test]
fn a_number_is_taken_only_if_it_was_verified() {
    let file = read(format!(
        "{{\"login\":\"a1\",\"password_hash\":\"{HASH}\",\"phone\":\"13800138000\"}}\n\
        {{\"login\":\"b1\",\"password_hash\":\"{HASH}\",\"phone\":\"not a number\",\"phone_verified\":false}}\n\
        {{\"login\":\"c1\",\"phone\":\"13800138000\",\"phone_verified\":true,\"password_hash\":null}}"
    ));
    assert_eq!((file.mistakes.count(), file.unverified), (0, 2));
    let phones: Vec<_> = file.rows.iter().map(|row| row.phone.is_some()).collect();
    assert_eq!(phones, [false, false, true]);
    assert_eq!(file.rows[2].password_hash, None, "a code opens it");
    let (field, reason) = mistake(r#"{"login":"d1","phone":"13800138000"}"#);
    assert_eq!(field, "password_hash");
    assert!(reason.contains("nothing would open the account"), "{reason}");
}

#[test]
fn a_secret_of_an_app_is_read_or_its_field_is_named() {
    let with = |totp: &str| row("alice").replace('}', &format!(r#","totp":{totp}}}"#));
    for totp in [r#""gezdgnbvgy3tqojq""#, r#""otpauth://totp/a?secret=GEZDGNBVGY3TQOJQ""#] {
        let file = read(with(totp));
        assert_eq!(*file.rows[0].totp.as_ref().expect(totp).base32(), "GEZDGNBVGY3TQOJQ");
    }
    assert_eq!(read(with("null")).rows[0].totp, None);
    for (totp, reason) in [
        ("7", "must be a text"),
        (r#""hunter2!""#, "is neither base32 nor an otpauth: address"),
        (r#""otpauth://totp/a?secret=GEZDGNBVGY3TQOJQ&digits=8""#, "must have 6 digits"),
    ] {
        assert_eq!(mistake(&with(totp)), ("totp", reason.to_owned()));
    }
}

#[test]
fn a_profile_is_read_as_administrators_set_it() {
    let with = |profile: &str| row("alice").replace('}', &format!(",{profile}}}"));
    let file = read(with(r#""email":"Ada@Example.org","email_verified":true,"name":"王小明""#));
    let whole = Profile::parse(Some("Ada@Example.org"), true, Some("王小明")).unwrap();
    assert_eq!(file.rows[0].profile, whole);
    for nothing in [r#""email":null,"name":null,"email_verified":null"#, r#""email_verified":false"#] {
        assert_eq!(read(with(nothing)).rows[0].profile, Profile::default());
    }
    for (profile, field, said) in [
        (r#""email":7"#, "email", "must be a text"),
        (r#""email":"hunter2""#, "email", "must be one address"),
        (r#""email":"a@b,c@d""#, "email", "must be one address"),
        (r#""email_verified":true"#, "email_verified", "must not be true without an email"),
        (r#""email":"a@b","email_verified":"hunter2""#, "email_verified", "must be true or false"),
        (r#""name":["hunter2"]"#, "name", "must be a text"),
        (r#""name":"hunter2\n""#, "name", "must be 1 to 128 characters"),
    ] {
        let (named, reason) = mistake(&with(profile));
        assert_eq!(named, field, "{profile}");
        assert!(reason.starts_with(said) && !reason.contains("hunter2"), "{profile}: {reason}");
    }
}

#[test]
fn a_role_or_any_other_field_is_refused() {
    for (line, named) in [
        (r#"{"login":"a1","password_hash":"x","roles":["admin"]}"#, "unknown field `roles`"),
        (r#"{"login":"a1","admin":true}"#, "unknown field `admin`"),
        (r#"{"login":"a1","login":"b1"}"#, "duplicate field `login`"),
        (r#"{"login":"a1","Password_hash":"x"}"#, "unknown field `Password_hash`"),
    ] {
        let (field, reason) = mistake(line);
        assert_eq!(field, "line");
        assert!(reason.contains(named), "{reason}");
    }
}

#[test]
fn every_field_says_what_is_wrong_and_never_what_it_held() {
    let secret = "hunter2secret";
    for (line, field, said) in [
        (format!(r#"{{"password_hash":"{HASH}"}}"#), "login", "is missing"),
        (format!(r#"{{"login":7,"password_hash":"{HASH}"}}"#), "login", "must be a text"),
        (row(&format!("{secret} x")), "login", "must not contain spaces"),
        (row("a@b@example.com"), "login", "must be one address"),
        (row(""), "login", "enter a username"),
        (format!(r#"{{"login":"a1","password_hash":"{secret}"}}"#), "password_hash", "no known format"),
        (r#"{"login":"a1","password_hash":13912345678}"#.to_owned(), "password_hash", "must be a text"),
        (
            format!(r#"{{"login":"a1","password_hash":"{}"}}"#, HASH.replace("$04$", "$16$")),
            "password_hash",
            "4 to 14",
        ),
        (
            format!(r#"{{"login":"a1","password_hash":"{HASH}","phone":13912345678}}"#),
            "phone",
            "must be a text",
        ),
        (
            format!(r#"{{"login":"a1","password_hash":"{HASH}","phone":"{secret}","phone_verified":true}}"#),
            "phone",
            "is not a phone number",
        ),
        (
            format!(
                r#"{{"login":"a1","password_hash":"{HASH}","phone":"13800138000","phone_verified":"{secret}"}}"#
            ),
            "phone_verified",
            "must be true or false",
        ),
        (
            format!(r#"{{"login":"a1","password_hash":"{HASH}","phone_verified":true}}"#),
            "phone",
            "is missing",
        ),
        (format!(r#""{secret}""#), "line", "is not a JSON object"),
        (secret.to_owned(), "line", "is not a JSON object"),
        (format!(r#"{{"login":"{secret}"#), "line", "column"),
        (format!(r#"{{"login":"{secret}"}} {{"login":"b1"}}"#), "line", "trailing characters"),
    ] {
        let (named, reason) = mistake(&line);
        assert_eq!(named, field, "{line}");
        assert!(reason.contains(said), "{line}: {reason}");
        assert!(!reason.contains(secret) && !reason.contains("13912345678"), "{reason}");
    }
}

#[test]
fn one_name_and_one_number_are_taken_once() {
    let file = read(format!("{}\n{}\n", row("alice"), row("ＡＬＩＣＥ")));
    assert_eq!(file.rows.len(), 1);
    let [ImportMistake { line: 2, field: "login", reason }] = &file.mistakes.first[..] else { panic!() };
    assert_eq!(reason, "is the same name as on line 1");
    let phone = |login: &str, phone: &str| {
        format!("{{\"login\":\"{login}\",\"phone\":\"{phone}\",\"phone_verified\":true}}\n")
    };
    let file = read([phone("a1", "13800138000"), phone("b1", "+86 138-0013-8000")].concat());
    let [ImportMistake { line: 2, field: "phone", reason }] = &file.mistakes.first[..] else { panic!() };
    assert_eq!(reason, "is the same number as on line 1");
}

#[test]
fn lines_are_counted_as_an_editor_counts_them() {
    let file = read(format!("\u{feff}{}\r\n\r\n  \n{}\n{{\n{}", row("a1"), row("b1"), row("c1")));
    let lines: Vec<_> = file.rows.iter().map(|row| row.line).collect();
    assert_eq!(lines, [1, 4, 6]);
    assert_eq!(file.mistakes.first[0].line, 5);
    assert!(read("").rows.is_empty());
    assert_eq!(mistake("\u{feff}\u{feff}{}").0, "line");
    let mut bytes = b"{\"login\":\"\xff\xfe".to_vec();
    bytes.extend(b"\"}");
    assert_eq!(read(bytes).mistakes.count(), 1, "no UTF-8");
}

#[test]
fn a_line_of_any_length_takes_bounded_memory_and_the_next_is_read() {
    /// Counts what is asked for at once.
    struct Endless(usize);
    impl Read for Endless {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let some = into.len().min(self.0);
            into[..some].fill(b'{');
            self.0 -= some;
            Ok(some)
        }
    }
    let mut text = Vec::new();
    let mut input = io::BufReader::new(Endless(50_000_000).chain(&b"\n{}\n"[..]));
    assert!(matches!(next_line(&mut input, &mut text).unwrap(), LineRead::TooLong));
    assert!(text.capacity() <= 4 * LONGEST_LINE, "{}", text.capacity());
    assert!(matches!(next_line(&mut input, &mut text).unwrap(), LineRead::Line));
    assert_eq!(text, b"{}\n");
    assert!(matches!(next_line(&mut input, &mut text).unwrap(), LineRead::End));
    let long = format!("{{\"login\":\"{}\"}}", "x".repeat(LONGEST_LINE));
    let file = read(format!("{long}\n{}", row("a1")));
    assert_eq!((file.rows.len(), file.mistakes.first[0].line), (1, 1));
    assert_eq!(mistake(&format!("{{{}", "[".repeat(10_000))).0, "line", "no nesting overflows the stack");
}

#[test]
fn mistakes_are_kept_up_to_a_bound_and_counted_beyond() {
    let file = read("x\n".repeat(1234));
    assert_eq!((file.mistakes.first.len(), file.mistakes.more), (50, 1184));
}

#[test]
fn one_document_gets_one_mistake_that_says_what_to_do() {
    for text in [
        "[\n  {\n    \"login\": \"a1\"\n  }\n]\n".to_owned(),
        "{\n  \"realm\" : \"shop\",\n  \"users\" : [ ]\n}\n".to_owned(),
        "\u{feff}{ \r\n\"login\": \"a1\"\r\n}".to_owned(),
        format!("{{\"users\":[{}]}}", "{},".repeat(10_000)),
        format!("[{}]", "{},".repeat(10_000)),
    ] {
        let file = read(&text);
        let [ImportMistake { line: 1, field: "line", reason }] = &file.mistakes.first[..] else {
            panic!("{text}")
        };
        assert!(
            reason.contains("--from keycloak, auth0, firebase or django") && reason.ends_with("'.[]'"),
            "{reason}"
        );
        assert!(file.rows.is_empty());
    }
}
