use super::*;
use crate::accounts::{AccountAct, Factors, ImportFile, Profiles, Roles, ShownBy, Username};
use crate::clock::{Clock, Micros};
use crate::db::Db;
use crate::db::tests::{TestDatabase, on_both_databases};
use crate::entropy::Entropy;
use crate::foundation::Foundation;

const CHEAP: &str = "$2b$04$9GAjsXD.2ikRqsIemgkUBe4fAvHKSR3hpyOBv/UIWlB5zhv88oRc6";
const SLOW: &str = "$2b$12$9GAjsXD.2ikRqsIemgkUBe4fAvHKSR3hpyOBv/UIWlB5zhv88oRc6";
const LARGE: &str =
    "$scrypt$ln=14,r=64,p=1$B2CslTIm5HwPYexday2FsA$pFh5nsACIsxx78Hif1QJlCud/EKGFGPMqWK6wR024ss";

async fn accounts(database: &TestDatabase) -> Accounts {
    let db = Db::connect(&database.url).await.unwrap();
    Accounts::new(db, Clock::manual(Micros(1_000_000)), Entropy::Os)
}

fn factors(accounts: &Accounts) -> Factors {
    Factors::new(&Foundation::keyed([1; 32], &accounts.db, &accounts.clock))
}

fn rows(text: &str) -> Vec<ImportRow> {
    let file = ImportFile::read(text.as_bytes(), |phone| Phone::parse(phone, "CN")).unwrap();
    assert_eq!(file.mistakes.count(), 0, "{:?}", file.mistakes);
    file.rows
}

fn row(login: &str, hash: &str) -> String {
    format!("{{\"login\":\"{login}\",\"password_hash\":\"{hash}\"}}\n")
}

fn name(text: &str) -> Username {
    Username::parse(text).unwrap()
}

on_both_databases!(
    all_accounts_of_a_file_are_created,
    profiles_come_along,
    if_one_cannot_be_created_none_is,
    a_dry_run_writes_nothing,
    of_imports_of_one_file_at_once_one_writes_it,
    the_dearest_is_known_until_each_hash_is_replaced,
);

async fn all_accounts_of_a_file_are_created(database: TestDatabase) {
    let accounts = accounts(&database).await;
    let phone = "{\"login\":\"zoe\",\"phone\":\"+8613800138000\",\"phone_verified\":true}\n";
    let text: String = (0..250).map(|number| row(&format!("user{number}"), CHEAP)).collect();
    let rows = rows(&format!("{text}{phone}"));
    assert_eq!(accounts.import(&rows, &factors(&accounts), false).await.unwrap(), ImportOutcome::Done);
    for row in &rows {
        let account = accounts.find(&row.login).await.unwrap().unwrap();
        assert_eq!((&account.password_hash, &account.phone), (&row.password_hash, &row.phone));
        assert_eq!(
            (account.roles, account.password_version, account.must_change_password),
            (Roles::default(), 0, false)
        );
        assert_eq!(account.created_at, Micros(1_000_000));
    }
    assert_eq!(accounts.count_imported().await.unwrap(), 250);
}

async fn profiles_come_along(database: TestDatabase) {
    let accounts = accounts(&database).await;
    let profiles = Profiles::new(&Foundation::keyed([1; 32], &accounts.db, &accounts.clock));
    let line = |number: usize| match number % 3 {
        0 => row(&format!("user{number}"), CHEAP),
        1 => row(&format!("user{number}"), CHEAP).replace('}', r#","email":"one@example.org"}"#),
        _ => row(&format!("user{number}"), CHEAP).replace(
            '}',
            &format!(r#","name":"User {number}","email":"u{number}@example.org","email_verified":true}}"#),
        ),
    };
    let rows = rows(&(0..350).map(line).collect::<String>());
    assert_eq!(accounts.import(&rows, &factors(&accounts), false).await.unwrap(), ImportOutcome::Done);
    for row in &rows {
        let account = accounts.find(&row.login).await.unwrap().unwrap();
        assert_eq!(profiles.of(account.id).await.unwrap(), row.profile, "{:?}", row.line);
    }
}

async fn if_one_cannot_be_created_none_is(database: TestDatabase) {
    let accounts = accounts(&database).await;
    accounts.create(&name("taken"), &Phc::stored("x".into()), Roles::default()).await.unwrap();
    let gone = accounts.create(&name("gone"), &Phc::stored("x".into()), Roles::default()).await.unwrap();
    accounts.change(gone.id, AccountAct::Delete, false).await.unwrap();
    let number = Phone::parse("+8613800138000", "CN").unwrap();
    accounts.create_with_phone(&name("bob"), None, &number).await.unwrap();
    let phone = format!(
        "{{\"login\":\"carol\",\"password_hash\":\"{CHEAP}\",\"phone\":\"+8613800138000\",\"phone_verified\":true}}\n"
    );
    let rows = rows(&[row("new", CHEAP), row("TAKEN", CHEAP), row("gone", CHEAP), phone].concat());
    let refused = ImportOutcome::Refused(vec![
        (1, ImportConflict::LoginTaken),
        (2, ImportConflict::LoginDeleted),
        (3, ImportConflict::PhoneTaken),
    ]);
    for dry_run in [true, false] {
        assert_eq!(accounts.import(&rows, &factors(&accounts), dry_run).await.unwrap(), refused);
    }
    assert_eq!(accounts.find(&name("new")).await.unwrap(), None);
    assert_eq!(accounts.import(&rows[..1], &factors(&accounts), false).await.unwrap(), ImportOutcome::Done);
}

async fn a_dry_run_writes_nothing(database: TestDatabase) {
    let accounts = accounts(&database).await;
    assert_eq!(
        accounts.import(&rows(&row("alice", CHEAP)), &factors(&accounts), true).await.unwrap(),
        ImportOutcome::Done
    );
    assert_eq!(accounts.find(&name("alice")).await.unwrap(), None);
}

async fn of_imports_of_one_file_at_once_one_writes_it(database: TestDatabase) {
    let accounts = accounts(&database).await;
    let text: String = (0..150).map(|number| row(&format!("user{number}"), CHEAP)).collect();
    let tasks: Vec<_> = (0..4)
        .map(|_| {
            let (accounts, rows) = (accounts.clone(), rows(&text));
            tokio::spawn(async move { accounts.import(&rows, &factors(&accounts), false).await.unwrap() })
        })
        .collect();
    let mut done = 0;
    for task in tasks {
        done += usize::from(task.await.unwrap() == ImportOutcome::Done);
    }
    assert_eq!((done, accounts.count_imported().await.unwrap()), (1, 150));
}

async fn the_dearest_is_known_until_each_hash_is_replaced(database: TestDatabase) {
    let accounts = accounts(&database).await;
    accounts.create(&name("own"), &Phc::stored("$argon2id$…".into()), Roles::default()).await.unwrap();
    assert_eq!(accounts.slowest_imported().await.unwrap(), None);
    let rows = rows(&[row("cheap", CHEAP), row("slow", SLOW), row("large", LARGE)].concat());
    accounts.import(&rows, &factors(&accounts), false).await.unwrap();
    let slowest_hash =
        async || accounts.slowest_imported().await.unwrap().map(|cost| (cost.millis, cost.memory_mib));
    let account = async |login| accounts.find(&name(login)).await.unwrap().unwrap();
    assert_eq!(slowest_hash().await, Some((368, 128)), "128 MiB of scrypt");
    accounts.change(account("large").await.id, AccountAct::Delete, false).await.unwrap();
    assert_eq!(slowest_hash().await, Some((246, 1)), "bcrypt 12");
    let slow = account("slow").await;
    let hash = slow.password_hash.as_ref().unwrap();
    assert!(accounts.rehash(slow.id, hash, &Phc::stored("$argon2id$…".into())).await.unwrap());
    assert_eq!(slowest_hash().await, Some((1, 1)));
    assert!(
        !accounts.rehash(slow.id, hash, &Phc::stored("other".into())).await.unwrap(),
        "it is replaced once"
    );
    assert_eq!(account("slow").await.password_version, slow.password_version, "its sessions go on");
    let cheap = account("cheap").await;
    let proof = ShownBy::Password(0);
    accounts.set_password(cheap.id, &Phc::stored("$argon2id$new".into()), proof).await.unwrap().unwrap();
    assert_eq!(slowest_hash().await, None);
    assert!(
        !accounts
            .rehash(cheap.id, cheap.password_hash.as_ref().unwrap(), &Phc::stored("x".into()))
            .await
            .unwrap()
    );
    assert_eq!(account("cheap").await.password_hash, Some(Phc::stored("$argon2id$new".into())));
}
