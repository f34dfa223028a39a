//! Whom a rule on names and groups lets in, counted by the database: there may be very many of them.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use sqlx::{AssertSqlSafe, query_as};
use utoipa::ToSchema;

use super::Accounts;
use super::import::placeholders;
use crate::config::Who;
use crate::db::{DbError, on_db};

/// Names and groups of a statement's rules: SQLite takes 32,766 parameters, and no statement longer than a million bytes.
pub const MOST_IN_A_STATEMENT: usize = 5_000;
/// Names looked up at once: SQLite compares the name of each parameter with those of all before it.
const NAMES_AT_ONCE: usize = 250;
/// How many accounts of a comparison are named.
pub const MOST_NAMED: usize = 20;

/// The accounts that something is open to, as far as that is about who they are.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EntryRule<'a> {
    /// Each of these lists has to name them.
    pub who: Vec<&'a [Who]>,
    /// They have a password.
    pub needs_password: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = AccountName)]
pub struct NamedAccount {
    pub id: String,
    pub login: String,
}

// Accounts that a change is about.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, ToSchema)]
#[schema(as = AccountsPreview)]
pub struct EntryCount {
    pub count: u64,
    /// The first in alphabetical order.
    #[schema(max_items = 20)]
    pub first: Vec<NamedAccount>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EntryChange {
    /// Accounts that could get in before, and could not after.
    pub loses: EntryCount,
    pub gains: EntryCount,
}

impl EntryRule<'_> {
    /// Names and groups in it.
    pub fn size(&self) -> usize {
        self.who.iter().map(|list| list.len()).sum()
    }
}

/// What is bound in the conditions of a statement.
#[derive(Default)]
pub(super) struct BoundValues(pub Vec<String>);

/// Accounts that may sign in.
const ENABLED: &str = "a.disabled_at IS NULL AND a.deleted_at IS NULL";

/// How many of them have the same groups: from the index of groups, less those that are disabled. SQLite keeps the order
/// of a CROSS JOIN: it looks for the groups of each account that is disabled.
const ENABLED_BY_GROUPS: &str = "SELECT names, CAST(SUM(count) AS BIGINT) FROM (
    SELECT names, COUNT(*) AS count FROM account_groups GROUP BY names
    UNION ALL SELECT g.names, -COUNT(*) FROM accounts a CROSS JOIN account_groups g
        WHERE a.disabled_at IS NOT NULL AND a.deleted_at IS NULL AND g.account = a.id GROUP BY g.names
    ) AS counted GROUP BY names HAVING SUM(count) > 0";

impl BoundValues {
    pub fn bind(&mut self, value: String) -> String {
        self.0.push(value);
        format!("${}", self.0.len())
    }

    /// Its condition, and the ids of all that it might let in; None: of everybody.
    fn of_rule(&mut self, rule: &EntryRule<'_>) -> (String, Option<String>) {
        let named: Vec<String> = rule.who.iter().filter_map(|who| self.of_list(who)).collect();
        let mut all: Vec<String> = named.iter().map(|ids| format!("a.id IN ({ids})")).collect();
        all.push(if rule.needs_password { "a.password_hash IS NOT NULL" } else { "1 = 1" }.to_owned());
        (format!("({})", all.join(" AND ")), named.into_iter().next())
    }

    /// The ids of those that a list names; None: of everybody.
    fn of_list(&mut self, who: &[Who]) -> Option<String> {
        // What is bound has to be used.
        if who.contains(&Who::Everyone) {
            return None;
        }
        // A list in SQL is not empty, and nothing is NULL.
        let (mut names, mut groups) = ("NULL".to_owned(), "NULL".to_owned());
        for who in who {
            match who {
                Who::Everyone => {}
                Who::Name(name) => names += &format!(", {}", self.bind(name.clone())),
                Who::Group(group) => groups += &format!(", {}", self.bind(group.clone())),
            }
        }
        Some(format!(
            "SELECT account FROM group_members WHERE name IN ({groups})
            UNION ALL SELECT id FROM accounts WHERE login IN ({names})"
        ))
    }
}

impl Accounts {
    /// Whom another rule lets in instead. None: nobody gets in. It reads only accounts that a rule names, unless one of
    /// them is for everybody.
    pub async fn compare_entering(
        &self,
        before: Option<&EntryRule<'_>>,
        after: Option<&EntryRule<'_>>,
    ) -> Result<EntryChange, DbError> {
        let nobody = EntryRule { who: vec![&[]], needs_password: false };
        let mut bound = BoundValues::default();
        let (before, some) = bound.of_rule(before.unwrap_or(&nobody));
        let (after, others) = bound.of_rule(after.unwrap_or(&nobody));
        let among =
            some.zip(others).map(|(some, others)| format!(" AND a.id IN ({some} UNION ALL {others})"));
        let among = among.unwrap_or_default();
        // In one pass.
        let sql = format!(
            "WITH entering AS MATERIALIZED (SELECT a.id, a.login, {before} AS before, {after} AS after
                FROM accounts a WHERE {ENABLED}{among}),
            moved AS (SELECT id, login, before, COUNT(*) OVER (PARTITION BY before) AS count,
                ROW_NUMBER() OVER (PARTITION BY before ORDER BY login) AS place FROM entering WHERE before <> after)
            SELECT id, login, before, count FROM moved WHERE place <= {MOST_NAMED} ORDER BY place"
        );
        let rows: Vec<(String, String, bool, i64)> = on_db!(&self.db, pool => {
            let question = query_as(AssertSqlSafe(sql)).persistent(false);
            bound.0.iter().fold(question, |question, value| question.bind(value)).fetch_all(pool).await
        })?;
        let mut change = EntryChange::default();
        for (id, login, before, count) in rows {
            let moved = if before { &mut change.loses } else { &mut change.gains };
            moved.count = count.unsigned_abs();
            moved.first.push(NamedAccount { id, login });
        }
        Ok(change)
    }
}

/// What accounts that may sign in say about lists.
#[derive(Debug, PartialEq, Eq)]
pub struct ListedAccounts {
    /// How many each list lets in.
    pub entering: Vec<u64>,
    /// Names that no such account has, and groups that none is in.
    pub missing: BTreeSet<Who>,
}

/// Counts by list. It is told first how many accounts are in the same groups, and then each account that a list names.
struct ListTally<'a> {
    entering: Vec<u64>,
    listings: BTreeMap<&'a Who, Listing>,
}

/// A name, a group or everyone.
#[derive(Default)]
struct Listing {
    /// Positions of the lists that it is in.
    lists: Vec<usize>,
    found: bool,
}

impl<'a> ListTally<'a> {
    fn new(lists: &[&'a [Who]], others: impl Iterator<Item = &'a Who>) -> Self {
        let mut listings: BTreeMap<&Who, Listing> = others.map(|who| (who, Listing::default())).collect();
        for (list, who) in
            lists.iter().enumerate().flat_map(|(list, all)| all.iter().map(move |it| (list, it)))
        {
            listings.entry(who).or_default().lists.push(list);
        }
        Self { entering: vec![0; lists.len()], listings }
    }

    /// The lists that somebody is in, by position.
    fn find(&mut self, who: &Who) -> &[usize] {
        let listing = self.listings.get_mut(who).map(|listing| {
            listing.found = true;
            &listing.lists[..]
        });
        listing.unwrap_or_default()
    }

    /// The lists that let in accounts of these groups.
    fn open_to(&mut self, groups: &str) -> BTreeSet<usize> {
        let mut open: BTreeSet<usize> = self.find(&Who::Everyone).iter().copied().collect();
        for group in groups.split(',') {
            open.extend(self.find(&Who::Group(group.to_owned())));
        }
        open
    }

    fn add_groups(&mut self, groups: &str, accounts: u64) {
        for list in self.open_to(groups) {
            self.entering[list] += accounts;
        }
    }

    /// The lists that its groups open are counted already.
    fn add_name(&mut self, login: String, groups: &str) {
        let mut open = self.open_to(groups);
        for list in self.find(&Who::Name(login)).to_vec() {
            self.entering[list] += u64::from(open.insert(list));
        }
    }

    fn done(self) -> ListedAccounts {
        let unknown = self.listings.into_iter().filter(|(who, it)| !it.found && **who != Who::Everyone);
        ListedAccounts { entering: self.entering, missing: unknown.map(|(who, _)| who.clone()).collect() }
    }
}

impl Accounts {
    async fn enabled_by_groups(&self) -> Result<Vec<(String, i64)>, DbError> {
        Ok(on_db!(&self.db, pool => query_as(ENABLED_BY_GROUPS).fetch_all(pool).await)?)
    }

    /// Counts for each of the lists, and looks for every name and group in them and in `others`. However many accounts
    /// there are and however long the lists, it reads only indexes, those that are disabled, and those that are named.
    pub async fn find_listed<'a>(
        &self,
        lists: &[&'a [Who]],
        others: impl Iterator<Item = &'a Who>,
    ) -> Result<ListedAccounts, DbError> {
        let mut tally = ListTally::new(lists, others);
        // Each reads a large index from end to end.
        let (sets, totals) = tokio::try_join!(self.enabled_by_groups(), self.totals())?;
        let mut in_none = totals.all.saturating_sub(totals.disabled);
        for (groups, accounts) in sets {
            in_none = in_none.saturating_sub(accounts.unsigned_abs());
            tally.add_groups(&groups, accounts.unsigned_abs());
        }
        tally.add_groups("", in_none);
        let name = |who: &&'a Who| match who {
            Who::Name(name) => Some(name.as_str()),
            Who::Everyone | Who::Group(_) => None,
        };
        let names: Vec<&str> = tally.listings.keys().filter_map(name).collect();
        for names in names.chunks(NAMES_AT_ONCE) {
            let sql = format!(
                "SELECT a.login, COALESCE(g.names, '') FROM accounts a
                LEFT JOIN account_groups g ON g.account = a.id WHERE {ENABLED} AND a.login IN {}",
                placeholders(0, names.len())
            );
            let rows: Vec<(String, String)> = on_db!(&self.db, pool => {
                let question = query_as(AssertSqlSafe(sql)).persistent(false);
                names.iter().fold(question, |question, name| question.bind(*name)).fetch_all(pool).await
            })?;
            for (login, groups) in rows {
                tally.add_name(login, &groups);
            }
        }
        Ok(tally.done())
    }
}
