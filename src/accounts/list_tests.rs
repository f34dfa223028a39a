use super::*;
use crate::accounts::{AccountAct, Phc, Roles, Username};
use crate::clock::Clock;
use crate::db::on_db;
use crate::db::tests::{TestDatabase, on_both_databases};
use crate::entropy::Entropy;

on_both_databases!(
    every_order_is_paged_to_its_end_both_ways,
    each_filter_lists_those_that_it_names_and_no_others,
    members_follow_from_the_groups_that_an_older_version_writes,
    totals_leave_out_what_is_deleted,
);

const GROUPS: [&str; 3] = ["ops", "staff", "tokyo"];

/// Thirty accounts in turns: every third an administrator, every fifth disabled, every seventh has to change its password,
/// every eleventh deleted. Their names are in another order than their ages.
async fn people(db: &Db) -> (Accounts, Vec<Account>) {
    let clock = Clock::manual(Micros(1_000_000));
    let accounts = Accounts::new(db.clone(), clock.clone(), Entropy::Os);
    let mut people = Vec::new();
    for number in 0..30_u8 {
        let login =
            Username::parse(&format!("{}-{number:02}", ["zoe", "ada", "Émile"][usize::from(number % 3)]));
        let roles = Roles { admin: number % 3 == 0 };
        let account = accounts.create(&login.unwrap(), &Phc::stored("x".to_owned()), roles).await.unwrap();
        let groups = GROUPS.iter().enumerate().filter(|(at, _)| usize::from(number) % (at + 2) == 0);
        let groups = Groups::parse(groups.map(|(_, name)| *name)).unwrap();
        accounts.change_groups(account.id, false, |_| groups.clone()).await.unwrap();
        let acts = [(5, AccountAct::Disable), (7, AccountAct::RequireNewPassword), (11, AccountAct::Delete)];
        for (_, act) in acts.into_iter().filter(|(every, _)| number % every == 4) {
            accounts.change(account.id, act, false).await.unwrap();
        }
        // Two at one time: its own id tells them apart.
        if number % 2 == 1 {
            clock.advance(std::time::Duration::from_micros(1));
        }
        people.push(accounts.by_id(account.id).await.unwrap().unwrap());
    }
    (accounts, people)
}

async fn walked(accounts: &Accounts, filter: &AccountSearch) -> Vec<String> {
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let page = accounts.page(filter, after, 4).await.unwrap();
        found.extend(page.entries.iter().map(|it| it.account.login.as_str().to_owned()));
        match page.next {
            Some(next) => after = AccountCursor::parse(&next.to_string()),
            None => return found,
        }
        assert!(after.is_some() && found.len() < 100);
    }
}

async fn every_order_is_paged_to_its_end_both_ways(database: TestDatabase) {
    let (accounts, people) = people(&database.open().await).await;
    for number in [3, 1, 4, 1, 5] {
        const SIGN_IN: &str = "INSERT INTO sign_ins (id, account, signed_in_at, network, user_agent)
            VALUES ($1, $2, $3, '', '')";
        let (id, at) = (AccountId::random(&Entropy::Os).to_string(), 100 + number as i64);
        let account = people[number].id.to_string();
        on_db!(&accounts.db, pool => sqlx::query(SIGN_IN).bind(id).bind(account).bind(at).execute(pool).await.map(drop)).unwrap();
    }
    let named = |people: &mut dyn Iterator<Item = &Account>| {
        people.map(|it| it.login.as_str().to_owned()).collect::<Vec<_>>()
    };
    let mut left: Vec<&Account> = people.iter().filter(|it| it.deleted_at.is_none()).collect();
    for reversed in [false, true] {
        let all = |by| AccountSearch { by, reversed, ..AccountSearch::default() };
        let turned = |mut all: Vec<String>| {
            if reversed {
                all.reverse();
            }
            all
        };
        left.sort_by_key(|it| (std::cmp::Reverse(it.created_at), std::cmp::Reverse(it.id.to_string())));
        assert_eq!(
            walked(&accounts, &all(AccountKey::Created)).await,
            turned(named(&mut left.iter().copied()))
        );
        left.sort_by_key(|it| it.login.as_str().to_owned());
        assert_eq!(
            walked(&accounts, &all(AccountKey::Login)).await,
            turned(named(&mut left.iter().copied()))
        );
        let signed_in = [5, 3, 1].map(|number: usize| people[number].login.as_str().to_owned()).to_vec();
        assert_eq!(walked(&accounts, &all(AccountKey::LastSignIn)).await, turned(signed_in));
    }
}

async fn each_filter_lists_those_that_it_names_and_no_others(database: TestDatabase) {
    let (accounts, people) = people(&database.open().await).await;
    let option =
        |of: &[&'static str]| std::iter::once(None).chain(of.iter().map(|it| Some(*it))).collect::<Vec<_>>();
    for role in std::iter::once(None).chain(AccountRole::VARIANTS.iter().copied().map(Some)) {
        for state in std::iter::once(None).chain(AccountState::VARIANTS.iter().copied().map(Some)) {
            for group in option(&["ops", "staff", "nobody-is-in-it"]) {
                for login in option(&["ada", "é", "zoe-1"]) {
                    for by in [AccountKey::Created, AccountKey::Login] {
                        let filter = AccountSearch {
                            login: login.map(str::to_owned),
                            phone: None,
                            role,
                            state,
                            group: group.map(str::to_owned),
                            by,
                            reversed: false,
                        };
                        let mut wanted = Vec::new();
                        for account in people.iter().filter(|it| it.deleted_at.is_none()) {
                            let fits = role
                                .is_none_or(|role| account.roles.admin == (role == AccountRole::Admin))
                                && state.is_none_or(|state| AccountState::of(account) == state)
                                && login.is_none_or(|letters| account.login.as_str().starts_with(letters));
                            let fits_group = match group {
                                Some(group) => accounts.groups(account.id).await.unwrap().contains(group),
                                None => true,
                            };
                            if fits && fits_group {
                                wanted.push(account.login.as_str().to_owned());
                            }
                        }
                        let mut found = walked(&accounts, &filter).await;
                        if by == AccountKey::Created {
                            found.sort();
                        }
                        wanted.sort();
                        assert_eq!(found, wanted, "{filter:?}");
                    }
                }
            }
        }
    }
}

async fn members(accounts: &Accounts) -> Vec<(String, i64)> {
    accounts.group_sizes("", 100).await.unwrap()
}

async fn members_follow_from_the_groups_that_an_older_version_writes(database: TestDatabase) {
    // As it did.
    const SET: &str = "INSERT INTO account_groups (account, names) VALUES ($1, $2)
        ON CONFLICT (account) DO UPDATE SET names = excluded.names";
    const END: &str = "DELETE FROM account_groups WHERE account = $1";
    let db = database.open().await;
    let accounts = Accounts::new(db.clone(), Clock::System, Entropy::Os);
    let mut ids = Vec::new();
    for name in ["ada", "bob"] {
        let login = Username::parse(name).unwrap();
        ids.push(
            accounts
                .create(&login, &Phc::stored("x".to_owned()), Roles::default())
                .await
                .unwrap()
                .id
                .to_string(),
        );
    }
    let set = async |id: &str, names: &str| {
        on_db!(&db, pool => sqlx::query(SET).bind(id).bind(names).execute(pool).await.map(drop)).unwrap();
    };
    let sizes = |sizes: &[(&str, i64)]| {
        sizes.iter().map(|(name, size)| ((*name).to_owned(), *size)).collect::<Vec<_>>()
    };
    set(&ids[0], "on-call,staff").await;
    set(&ids[1], "staff").await;
    assert_eq!(members(&accounts).await, sizes(&[("on-call", 1), ("staff", 2)]));
    assert_eq!(accounts.group_size("staff").await.unwrap(), 2);
    set(&ids[0], "2026,staff").await;
    set(&ids[1], "").await;
    assert_eq!(members(&accounts).await, sizes(&[("2026", 1), ("staff", 1)]));
    on_db!(&db, pool => sqlx::query(END).bind(&ids[0]).execute(pool).await.map(drop)).unwrap();
    assert_eq!(members(&accounts).await, []);
}

async fn totals_leave_out_what_is_deleted(database: TestDatabase) {
    let (accounts, people) = people(&database.open().await).await;
    let left: Vec<&Account> = people.iter().filter(|it| it.deleted_at.is_none()).collect();
    let count = |fits: &dyn Fn(&Account) -> bool| left.iter().filter(|it| fits(it)).count() as u64;
    let totals = AccountTotals {
        all: count(&|_| true),
        disabled: count(&|it| it.disabled_at.is_some()),
        admins: count(&|it| it.roles.admin),
    };
    assert_eq!(accounts.totals().await.unwrap(), totals);
    assert!(totals.all < 30 && totals.disabled > 0 && totals.admins > 0);
}

/// PostgreSQL has statistics, and reads small tables as they are.
#[tokio::test]
async fn lists_are_read_from_indexes() {
    let db = Db::connect("sqlite::memory:").await.unwrap();
    let roles = std::iter::once(None).chain(AccountRole::VARIANTS.iter().copied().map(Some));
    for role in roles {
        for state in std::iter::once(None).chain(AccountState::VARIANTS.iter().copied().map(Some)) {
            for group in [None, Some("staff".to_owned())] {
                for by in AccountKey::VARIANTS.iter().copied() {
                    let filter =
                        AccountSearch { role, state, group: group.clone(), by, ..AccountSearch::default() };
                    if !filter.takes(by) {
                        continue;
                    }
                    let query = ListQuery::new(&filter, by, &db);
                    let sql = format!("EXPLAIN QUERY PLAN {}", query.ids("DESC", 51));
                    let rows: Vec<(i64, i64, i64, String)> = on_db!(&db, pool => {
                        let question = query_as(AssertSqlSafe(sql));
                        query.bound.0.iter().fold(question, |question, value| question.bind(value)).fetch_all(pool).await
                    })
                    .unwrap();
                    let plan: Vec<&str> = rows.iter().map(|(.., step)| step.as_str()).collect();
                    let reads_all =
                        plan.iter().any(|step| step.starts_with("SCAN") && !step.contains("INDEX"));
                    // Few are sorted.
                    let sorts = plan.iter().any(|step| step.contains("TEMP B-TREE"));
                    assert!(
                        !reads_all && sorts == (by == AccountKey::Login && filter.is_of_few()),
                        "{filter:?} {by:?} {plan:#?}"
                    );
                    let partial = ["accounts_admins", "accounts_disabled", "accounts_to_change"];
                    let reads_few = plan.iter().any(|step| partial.iter().any(|index| step.contains(index)));
                    assert_eq!(reads_few, filter.is_of_few(), "{filter:?} {by:?} {plan:#?}");
                }
            }
        }
    }
}
