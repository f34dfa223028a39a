use super::*;
use crate::db::tests::{TestDatabase, on_both_databases};
use crate::foundation::Foundation;
use crate::mail::{MailQueue, Mailbox};
use crate::secret::MasterKey;

async fn accounts(url: &str) -> Accounts {
    let db = Db::connect(url).await.unwrap();
    Accounts::new(db, Clock::manual(Micros(1_000_000)), Entropy::Os)
}

fn name(text: &str) -> Username {
    Username::parse(text).unwrap()
}

fn phc(text: &str) -> Phc {
    Phc::stored(text.to_owned())
}

/// The password with which an account was created.
const FIRST: ShownBy<'static> = ShownBy::Password(0);

fn phone(last: u8) -> Phone {
    Phone::stored(format!("+86138001380{last:02}"))
}

on_both_databases!(
    what_was_created_is_found,
    a_final_sigma_makes_no_second_account_and_those_that_there_are_stay_apart,
    of_fifty_that_ask_for_one_login_at_once_one_gets_it,
    of_two_instances_that_start_at_once_one_makes_the_first_admin,
    a_user_is_no_admin_and_may_hold_the_admins_login,
    a_chosen_password_replaces_the_one_time_password,
    a_rehash_never_undoes_a_change_of_password,
    an_account_is_found_by_its_number,
    of_fifty_accounts_that_want_one_number_at_once_one_gets_it,
    a_number_is_replaced_and_removed_where_a_password_is_left,
    a_password_is_set_by_who_shows_the_number_that_the_account_has_now,
    of_changes_of_groups_at_once_each_begins_where_another_ended,
    of_twenty_that_register_with_one_mailbox_at_once_one_gets_it,
    under_another_key_addresses_are_found_and_notices_that_wait_are_sent,
    an_address_is_removed_from_the_account_as_it_was_and_the_address_before_is_told_of_a_deleted_one,
);

async fn what_was_created_is_found(database: TestDatabase) {
    let accounts = accounts(&database.url).await;
    let made = accounts.create(&name("Alice"), &phc("one"), Roles { admin: true }).await.unwrap();
    assert_eq!(made.created_at, Micros(1_000_000));
    assert_eq!(accounts.find(&name("ＡＬＩＣＥ")).await.unwrap(), Some(made.clone()));
    assert_eq!(accounts.by_id(made.id).await.unwrap(), Some(made));
    assert_eq!(accounts.find(&name("bob")).await.unwrap(), None);
    assert_eq!(accounts.by_id(AccountId::random(&Entropy::Os)).await.unwrap(), None);
}

async fn a_final_sigma_makes_no_second_account_and_those_that_there_are_stay_apart(database: TestDatabase) {
    const SPELLINGS: [&str; 3] = ["σίσυφος", "ΣΊΣΥΦΟΣ", "σίσυφοσ"];
    let accounts = accounts(&database.url).await;
    let found = async |text: &str| accounts.find(&name(text)).await.unwrap().map(|account| account.id);
    let made = accounts.create(&name("σίσυφοσ"), &phc("one"), Roles::default()).await.unwrap();
    assert_eq!(made.login.as_str(), "σίσυφος");
    for text in SPELLINGS {
        assert_eq!(found(text).await, Some(made.id), "{text}");
        let device = accounts.find_from(&name(text), DeviceId::from([1; 16])).await.unwrap();
        assert_eq!(device.map(|(account, _)| account.id), Some(made.id), "{text}");
        let again = accounts.create(&name(text), &phc("two"), Roles::default()).await;
        assert!(matches!(again, Err(CreateError::LoginTaken)), "{text}");
    }
    // An older version stored them so, which took each spelling for a name.
    let rename = async |id: AccountId, login: &str| {
        const SQL: &str = "UPDATE accounts SET login = $1 WHERE id = $2";
        execute!(&accounts.db => query(SQL).bind(login).bind(id.to_string())).unwrap();
    };
    rename(made.id, "σίσυφοσ").await;
    for text in SPELLINGS {
        assert_eq!(found(text).await, Some(made.id), "{text}");
        let again = accounts.create(&name(text), &phc("two"), Roles::default()).await;
        assert!(matches!(again, Err(CreateError::LoginTaken)), "{text}");
    }
    let other = accounts.create(&name("bob"), &phc("two"), Roles::default()).await.unwrap();
    rename(other.id, "σίσυφος").await;
    assert_eq!(found("σίσυφος").await, Some(other.id));
    assert_eq!(found("σίσυφοσ").await, Some(made.id));
}

async fn of_fifty_that_ask_for_one_login_at_once_one_gets_it(database: TestDatabase) {
    let accounts = accounts(&database.url).await;
    let tasks: Vec<_> = (0..50)
        .map(|n| {
            let accounts = accounts.clone();
            let spelling = if n % 2 == 0 { "alice" } else { "ALICE" };
            tokio::spawn(async move { accounts.create(&name(spelling), &phc("x"), Roles::default()).await })
        })
        .collect();
    let mut made = 0;
    for task in tasks {
        match task.await.unwrap() {
            Ok(_) => made += 1,
            Err(CreateError::LoginTaken) => {}
            Err(CreateError::PhoneTaken | CreateError::EmailTaken) => panic!("nobody has one"),
            Err(CreateError::Db(error)) => panic!("{error}"),
        }
    }
    assert_eq!(made, 1);
}

async fn of_two_instances_that_start_at_once_one_makes_the_first_admin(database: TestDatabase) {
    let url = database.url.clone();
    let tasks: Vec<_> = (0..8)
        .map(|n| {
            let url = url.clone();
            // Other logins on purpose: there must be only one administrator.
            let login = name(&format!("admin{n}"));
            tokio::spawn(
                async move { accounts(&url).await.create_first_admin(&login, &phc("x")).await.unwrap() },
            )
        })
        .collect();
    let mut made = Vec::new();
    for task in tasks {
        made.extend(task.await.unwrap());
    }
    assert_eq!(made.len(), 1);
    assert!(made[0].roles.admin && made[0].must_change_password);
    assert!(accounts(&url).await.has_admin().await.unwrap());
}

async fn a_user_is_no_admin_and_may_hold_the_admins_login(database: TestDatabase) {
    let accounts = accounts(&database.url).await;
    accounts.create(&name("admin"), &phc("x"), Roles::default()).await.unwrap();
    assert!(!accounts.has_admin().await.unwrap());
    let made = accounts.create_first_admin(&name("admin"), &phc("x")).await;
    assert!(matches!(made, Err(CreateError::LoginTaken)));
    assert!(
        accounts.create_first_admin(&name("admin2"), &phc("x")).await.unwrap().is_some(),
        "nothing is left locked"
    );
}

async fn a_chosen_password_replaces_the_one_time_password(database: TestDatabase) {
    let accounts = accounts(&database.url).await;
    let admin = accounts.create_first_admin(&name("admin"), &phc("once")).await.unwrap().unwrap();
    assert_eq!(accounts.set_password(admin.id, &phc("chosen"), FIRST).await.unwrap(), Some(1));
    let now = accounts.by_id(admin.id).await.unwrap().unwrap();
    assert_eq!((now.password_hash, now.must_change_password), (Some(phc("chosen")), false));
    assert_eq!(accounts.set_password(AccountId::random(&Entropy::Os), &phc("x"), FIRST).await.unwrap(), None);
}

async fn a_rehash_never_undoes_a_change_of_password(database: TestDatabase) {
    let accounts = accounts(&database.url).await;
    let alice = accounts.create(&name("alice"), &phc("old"), Roles::default()).await.unwrap();
    accounts.set_password(alice.id, &phc("changed"), FIRST).await.unwrap();
    assert!(!accounts.rehash(alice.id, &phc("old"), &phc("rehashed")).await.unwrap());
    assert!(accounts.rehash(alice.id, &phc("changed"), &phc("rehashed")).await.unwrap());
    let now = accounts.by_id(alice.id).await.unwrap().unwrap();
    assert_eq!(now.password_hash, Some(phc("rehashed")));
}

async fn of_twenty_that_register_with_one_mailbox_at_once_one_gets_it(database: TestDatabase) {
    let db = Db::connect(&database.url).await.unwrap();
    let foundation = Foundation::keyed([3; 32], &db, &Clock::manual(Micros(1_000_000)));
    let accounts = Accounts::new(foundation.db.clone(), foundation.clock.clone(), Entropy::Os);
    let emails = Emails::new(&foundation, accounts.clone());
    let tasks: Vec<_> = (0..20)
        .map(|n| {
            let (emails, login) = (emails.clone(), name(&format!("user{n}")));
            let mailbox = Mailbox::parse(["ada@example.org", "Ada+x@example.org"][n % 2]).unwrap();
            tokio::spawn(async move { emails.create(&login, &phc("x"), (&mailbox, "en")).await })
        })
        .collect();
    let mut made = Vec::new();
    for task in tasks {
        match task.await.unwrap() {
            Ok(account) => made.push(account),
            Err(CreateError::EmailTaken) => {}
            Err(error) => panic!("{error}"),
        }
    }
    let owner = emails.find(&Mailbox::parse("ADA@example.org").unwrap().into()).await.unwrap();
    assert_eq!((made.len(), owner.as_ref()), (1, made.first()));
    // The registration of the others left no account behind: a name of theirs is free.
    let other = name(if made[0].login.as_str() == "user0" { "user1" } else { "user0" });
    assert_eq!(accounts.find(&other).await.unwrap(), None);
    let bob = Mailbox::parse("bob@example.org").unwrap();
    let again = emails.create(&made[0].login, &phc("x"), (&bob, "en")).await;
    assert!(matches!(again, Err(CreateError::LoginTaken)));
    assert!(emails.create(&other, &phc("x"), (&bob, "en")).await.is_ok());
}

async fn under_another_key_addresses_are_found_and_notices_that_wait_are_sent(database: TestDatabase) {
    let db = Db::connect(&database.url).await.unwrap();
    let clock = Clock::manual(Micros(1_000_000));
    let under = |key: u8| {
        let foundation = Foundation::keyed([key; 32], &db, &clock);
        Emails::new(&foundation, Accounts::new(db.clone(), clock.clone(), Entropy::Os))
    };
    let [old, new, third] = [1, 2, 3].map(under);
    let [before, now] = ["ada@old.example", "ada@new.example"].map(|it| Mailbox::parse(it).unwrap());
    let ada = old.create(&name("ada"), &phc("x"), (&before, "en")).await.unwrap();
    assert_eq!(old.set(&ada, &now, "en").await.unwrap(), RecipientSet::Done);

    let reseal = async |emails: &Emails, from: u8| {
        let ResealedEmails { sealed, kept, lost } =
            emails.reseal(&MasterKey::from_bytes([from; 32])).await.unwrap();
        (sealed, kept, lost)
    };
    assert_eq!(reseal(&new, 1).await, (1, 0, 0));
    assert_eq!(reseal(&new, 1).await, (0, 1, 0));
    assert_eq!(reseal(&third, 1).await, (0, 0, 1));
    assert_eq!(new.find(&now.clone().into()).await.unwrap().map(|found| found.id), Some(ada.id));

    let mut sent = Vec::new();
    for mail in MailQueue::new(db.clone(), clock.clone()).take(10).await.unwrap() {
        let own = mail.address.and_then(|(owner, address, _)| new.seal.open(&owner, &address));
        let letter = mail.sealed.map(|sealed| new.seal.letter(&mail.id, &sealed).unwrap());
        let to = letter.as_ref().and_then(|letter| letter.address.clone()).or(own).unwrap();
        assert_eq!(mail.mailbox, new.key(&Mailbox::parse(&to).unwrap()));
        let code = letter.and_then(|letter| FreezeCode::parse(&letter.code));
        let frozen = match &code {
            Some(code) => new.freeze(code).await.unwrap(),
            None => None,
        };
        sent.push((to, frozen));
    }
    sent.sort_by(|one, other| one.0.cmp(&other.0));
    assert_eq!(sent, [(now.as_str().to_owned(), None), (before.as_str().to_owned(), Some(ada.id))]);
}

async fn an_address_is_removed_from_the_account_as_it_was_and_the_address_before_is_told_of_a_deleted_one(
    database: TestDatabase,
) {
    let (db, clock) = (Db::connect(&database.url).await.unwrap(), Clock::manual(Micros(1_000_000)));
    let accounts = Accounts::new(db.clone(), clock.clone(), Entropy::Os);
    let emails = Emails::new(&Foundation::keyed([1; 32], &db, &clock), accounts.clone());
    let [before, now] = ["ada@old.example", "ada@new.example"].map(|it| Mailbox::parse(it).unwrap());
    let ada = emails.create(&name("ada"), &phc("x"), (&before, "en")).await.unwrap();
    assert_eq!(emails.set(&ada, &now, "en").await.unwrap(), RecipientSet::Done);
    accounts.change(ada.id, AccountAct::EndSessions, false).await.unwrap();
    assert!(!emails.remove(&ada).await.unwrap(), "it is not as it was");
    assert_eq!(emails.of(ada.id).await.unwrap(), Some(now));
    assert_eq!(accounts.change(ada.id, AccountAct::Delete, false).await.unwrap(), AccountChange::Done);
    let waiting = MailQueue::new(db, clock).take(10).await.unwrap();
    assert_eq!(waiting.iter().map(|mail| mail.kind).collect::<Vec<_>>(), [Some(LetterKind::AddressChanged)]);
}

async fn an_account_is_found_by_its_number(database: TestDatabase) {
    let accounts = accounts(&database.url).await;
    let made = accounts.create_with_phone(&name("alice"), None, &phone(1)).await.unwrap();
    assert_eq!(accounts.find_by_phone(&phone(1)).await.unwrap(), Some(made.clone()));
    assert_eq!(accounts.find(&name("alice")).await.unwrap(), Some(made));
    assert_eq!(accounts.find_by_phone(&phone(2)).await.unwrap(), None);
    let again = accounts.create_with_phone(&name("bob"), Some(&phc("x")), &phone(1)).await;
    assert!(matches!(again, Err(CreateError::PhoneTaken)));
    let again = accounts.create_with_phone(&name("alice"), Some(&phc("x")), &phone(2)).await;
    assert!(matches!(again, Err(CreateError::LoginTaken)));
}

async fn of_fifty_accounts_that_want_one_number_at_once_one_gets_it(database: TestDatabase) {
    let accounts = accounts(&database.url).await;
    let mut tasks = Vec::new();
    for n in 0..50 {
        let login = name(&format!("user{n}"));
        let account = accounts.create(&login, &phc("x"), Roles::default()).await.unwrap();
        let accounts = accounts.clone();
        tasks.push(tokio::spawn(async move { accounts.set_phone(&account, &phone(1)).await.unwrap() }));
    }
    let mut done = 0;
    for task in tasks {
        match task.await.unwrap() {
            RecipientSet::Done => done += 1,
            RecipientSet::Taken => {}
            RecipientSet::Gone => panic!("none was removed"),
        }
    }
    assert_eq!(done, 1);
}

async fn a_number_is_replaced_and_removed_where_a_password_is_left(database: TestDatabase) {
    let accounts = accounts(&database.url).await;
    let alice = accounts.create(&name("alice"), &phc("x"), Roles::default()).await.unwrap();
    let bob = accounts.create_with_phone(&name("bob"), None, &phone(1)).await.unwrap();
    assert_eq!(accounts.set_phone(&alice, &phone(1)).await.unwrap(), RecipientSet::Taken);
    for number in [phone(2), phone(2), phone(3)] {
        let now = accounts.by_id(alice.id).await.unwrap().unwrap();
        assert_eq!(accounts.set_phone(&now, &number).await.unwrap(), RecipientSet::Done);
        assert_eq!(
            accounts.set_phone(&now, &phone(4)).await.unwrap(),
            RecipientSet::Gone,
            "it is not as it was"
        );
        assert_eq!(accounts.by_id(alice.id).await.unwrap().unwrap().phone, Some(number));
    }
    assert_eq!(accounts.find_by_phone(&phone(2)).await.unwrap(), None, "free again");
    let nobody = Account { id: AccountId::random(&Entropy::Os), ..alice.clone() };
    assert_eq!(accounts.set_phone(&nobody, &phone(4)).await.unwrap(), RecipientSet::Gone);
    let now = accounts.by_id(alice.id).await.unwrap().unwrap();
    assert!(!accounts.remove_phone(&alice).await.unwrap(), "it is not as it was");
    assert!(accounts.remove_phone(&now).await.unwrap());
    assert_eq!(accounts.by_id(alice.id).await.unwrap().unwrap().phone, None);
    assert!(!accounts.remove_phone(&bob).await.unwrap(), "his only way in");
}

async fn a_password_is_set_by_who_shows_the_number_that_the_account_has_now(database: TestDatabase) {
    let accounts = accounts(&database.url).await;
    let bob = accounts.create_with_phone(&name("bob"), None, &phone(1)).await.unwrap();
    let set = async |number| {
        accounts.set_password(bob.id, &phc("new"), ShownBy::Phone(&number, None)).await.unwrap()
    };
    assert_eq!(set(phone(2)).await, None);
    assert_eq!(accounts.by_id(bob.id).await.unwrap().unwrap().password_hash, None);
    assert_eq!(set(phone(1)).await, Some(1));
    assert_eq!(set(phone(1)).await, Some(2));
}

async fn of_changes_of_groups_at_once_each_begins_where_another_ended(database: TestDatabase) {
    let accounts = accounts(&database.url).await;
    let id = accounts.create(&name("alice"), &phc("one"), Roles::default()).await.unwrap().id;
    let tasks: Vec<_> = (0..8)
        .map(|n| {
            let (accounts, group) = (accounts.clone(), Groups::parse([format!("g{n}").as_str()]).unwrap());
            tokio::spawn(async move {
                accounts.change_groups(id, false, |before| before.with(&group)).await.unwrap()
            })
        })
        .collect();
    let mut changes = Vec::new();
    for task in tasks {
        match task.await.unwrap() {
            AccountChange::NewGroups { from, to } => changes.push((from, to)),
            other => panic!("{other:?}"),
        }
    }
    changes.sort_by_key(|(from, _)| from.names().count());
    let ends = changes.iter().map(|(_, to)| to);
    let begins = std::iter::once(Groups::default()).chain(ends.cloned());
    assert!(changes.iter().map(|(from, _)| from.clone()).eq(begins.take(8)));
    assert_eq!(Some(&accounts.groups(id).await.unwrap()), changes.last().map(|(_, to)| to));
}
