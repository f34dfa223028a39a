//! How many accounts each of many lists of names and groups lets in, and which of these nobody has. It reads the
//! accounts once, however many lists there are and however long they are.

use std::collections::{BTreeSet, HashMap};

use sqlx::{AssertSqlSafe, query_as};

use super::{Accounts, MOST_IN_A_STATEMENT};
use crate::config::Who;
use crate::db::{DbError, on_db};

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
    for_everyone: Vec<bool>,
    groups: HashMap<&'a str, Listing>,
    names: HashMap<&'a str, Listing>,
}

/// A name or a group.
#[derive(Default)]
struct Listing {
    /// Positions of the lists that it is in.
    lists: Vec<usize>,
    found: bool,
}

impl<'a> ListTally<'a> {
    fn new(lists: &[&'a [Who]], others: impl Iterator<Item = &'a Who>) -> Self {
        let (entering, for_everyone) = (vec![0; lists.len()], vec![false; lists.len()]);
        let mut tally = Self { entering, for_everyone, groups: HashMap::new(), names: HashMap::new() };
        for who in others {
            tally.listing(who);
        }
        for (list, who) in
            lists.iter().enumerate().flat_map(|(list, who)| who.iter().map(move |who| (list, who)))
        {
            match tally.listing(who) {
                Some(listing) => listing.lists.push(list),
                None => tally.for_everyone[list] = true,
            }
        }
        tally
    }

    fn listing(&mut self, who: &'a Who) -> Option<&mut Listing> {
        match who {
            Who::Everyone => None,
            Who::Group(group) => Some(self.groups.entry(group).or_default()),
            Who::Name(name) => Some(self.names.entry(name).or_default()),
        }
    }

    /// The lists that let in accounts of these groups, by position.
    fn open_to(&mut self, groups: &str) -> Vec<bool> {
        let mut open = self.for_everyone.clone();
        for group in groups.split(',') {
            let Some(listing) = self.groups.get_mut(group) else { continue };
            listing.found = true;
            listing.lists.iter().for_each(|list| open[*list] = true);
        }
        open
    }

    fn add_groups(&mut self, groups: &str, accounts: u64) {
        let open = self.open_to(groups);
        for (count, _) in self.entering.iter_mut().zip(open).filter(|(_, open)| *open) {
            *count += accounts;
        }
    }

    /// The lists that its groups open are counted already.
    fn add_name(&mut self, login: &str, groups: &str) {
        let mut open = self.open_to(groups);
        let Some(listing) = self.names.get_mut(login) else { return };
        listing.found = true;
        for list in &listing.lists {
            if !std::mem::replace(&mut open[*list], true) {
                self.entering[*list] += 1;
            }
        }
    }

    fn done(self) -> ListedAccounts {
        let mut missing = BTreeSet::new();
        for (listings, who) in [(self.groups, Who::Group as fn(_) -> _), (self.names, Who::Name)] {
            let unknown = listings.into_iter().filter(|(_, listing)| !listing.found);
            missing.extend(unknown.map(|(name, _)| who(name.to_owned())));
        }
        ListedAccounts { entering: self.entering, missing }
    }
}

impl Accounts {
    /// Counts for each of the lists, and looks for every name and group in them and in `others`.
    pub async fn find_listed<'a>(
        &self,
        lists: &[&'a [Who]],
        others: impl Iterator<Item = &'a Who>,
    ) -> Result<ListedAccounts, DbError> {
        const GROUPS: &str = "SELECT COALESCE(g.names, ''), COUNT(*)
            FROM accounts a LEFT JOIN account_groups g ON g.account = a.id
            WHERE a.disabled_at IS NULL AND a.deleted_at IS NULL GROUP BY COALESCE(g.names, '')";
        const NAMES: &str = "SELECT a.login, COALESCE(g.names, '')
            FROM accounts a LEFT JOIN account_groups g ON g.account = a.id
            WHERE a.disabled_at IS NULL AND a.deleted_at IS NULL AND a.login IN";
        let mut tally = ListTally::new(lists, others);
        let rows: Vec<(String, i64)> = on_db!(&self.db, pool => query_as(GROUPS).fetch_all(pool).await)?;
        for (groups, accounts) in rows {
            tally.add_groups(&groups, accounts.unsigned_abs());
        }
        let names: Vec<&str> = tally.names.keys().copied().collect();
        for names in names.chunks(MOST_IN_A_STATEMENT) {
            let placeholders: Vec<String> = (1..=names.len()).map(|number| format!("${number}")).collect();
            let sql = format!("{NAMES} ({})", placeholders.join(", "));
            let rows: Vec<(String, String)> = on_db!(&self.db, pool => {
                let mut question = query_as(AssertSqlSafe(sql)).persistent(false);
                for name in names {
                    question = question.bind(*name);
                }
                question.fetch_all(pool).await
            })?;
            for (login, groups) in rows {
                tally.add_name(&login, &groups);
            }
        }
        Ok(tally.done())
    }
}
