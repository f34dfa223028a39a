//! Lists of accounts and of groups. Each filter and order is read from an index, however many accounts there are.

use sqlx::{AssertSqlSafe, Row, query_as, query_scalar};
use strum::{EnumString, IntoStaticStr, VariantArray};

use super::entry::BoundValues;
use super::{Account, AccountId, Accounts, Factor, Groups, Username};
use crate::clock::Micros;
use crate::db::{self, Db, DbError, from_row, on_db};
use crate::sms::Phone;

/// Which accounts are listed, and in which order.
#[derive(Debug, Clone, Default)]
pub struct AccountSearch {
    /// The first letters of the name.
    pub login: Option<String>,
    pub phone: Option<Phone>,
    pub role: Option<AccountRole>,
    pub state: Option<AccountState>,
    pub group: Option<String>,
    pub by: AccountKey,
    /// Otherwise the newest first, and names from a to z.
    pub reversed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "kebab-case", const_into_str)]
pub enum AccountRole {
    User,
    Admin,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "kebab-case", const_into_str)]
pub enum AccountState {
    Active,
    Disabled,
    /// It is not disabled, and its next sign-in has to choose another password.
    MustChangePassword,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "kebab-case", const_into_str)]
pub enum AccountKey {
    Login,
    /// Only accounts that have signed in.
    LastSignIn,
    #[default]
    Created,
}

/// An account as a list shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedAccount {
    pub account: Account,
    pub groups: Groups,
    pub last_sign_in: Option<Micros>,
    /// The strongest second factor that it has, but for recovery codes.
    pub factor: Option<Factor>,
}

from_row!(ListedAccount, row => ListedAccount {
    account: Account::from_row(row)?,
    groups: Groups::stored(row.try_get("group_names")?),
    last_sign_in: row.try_get::<Option<i64>, _>("last_sign_in")?.map(Micros),
    factor: row.try_get("factor")?,
});

/// Without accounts that are deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AccountTotals {
    pub all: u64,
    pub disabled: u64,
    pub admins: u64,
}

pub type AccountPage = db::RowPage<ListedAccount, AccountId>;
/// It has no name in it, because it is part of URLs.
pub type AccountCursor = db::RowCursor<AccountId>;

impl AccountCursor {
    pub fn parse(text: &str) -> Option<Self> {
        Self::parse_with(text, AccountId::parse)
    }
}

impl AccountRole {
    const fn sql(self) -> &'static str {
        match self {
            Self::User => "a.admin = 0",
            Self::Admin => "a.admin = 1",
        }
    }
}

impl AccountState {
    pub fn of(account: &Account) -> Self {
        match account {
            Account { disabled_at: Some(_), .. } => Self::Disabled,
            Account { must_change_password: true, .. } => Self::MustChangePassword,
            _ => Self::Active,
        }
    }

    const fn sql(self) -> &'static str {
        match self {
            Self::Active => "a.disabled_at IS NULL AND a.must_change_password = 0",
            Self::Disabled => "a.disabled_at IS NOT NULL",
            Self::MustChangePassword => "a.disabled_at IS NULL AND a.must_change_password = 1",
        }
    }
}

impl AccountSearch {
    pub fn by_name(login: String) -> Self {
        Self { login: Some(login), by: AccountKey::Login, ..Self::default() }
    }

    /// Whether an index has exactly such accounts, which are few beside all.
    fn is_of_few(&self) -> bool {
        self.role == Some(AccountRole::Admin) || self.state.is_some_and(|state| state != AccountState::Active)
    }

    /// Whether lists of these accounts are read in that order.
    pub fn takes(&self, key: AccountKey) -> bool {
        key != AccountKey::LastSignIn
            || (!self.is_of_few() && self.group.is_none() && self.login.is_none() && self.phone.is_none())
    }
}

/// Compared by bytes, as an index has it.
const fn login_column(db: &Db) -> &'static str {
    match db {
        Db::Sqlite(_) => "a.login",
        Db::Postgres(_) => "a.login COLLATE \"C\"",
    }
}

/// The parts of a statement about a list.
struct ListQuery {
    from: &'static str,
    conditions: Vec<String>,
    /// What it is ordered by.
    keys: Vec<&'static str>,
    bound: BoundValues,
}

impl ListQuery {
    fn new(filter: &AccountSearch, by: AccountKey, db: &Db) -> Self {
        let login = login_column(db);
        let sorted_login = match db {
            Db::Sqlite(_) => "(a.login || '')",
            Db::Postgres(_) => "(a.login || '') COLLATE \"C\"",
        };
        let mut query = Self {
            from: "accounts a",
            conditions: vec!["a.deleted_at IS NULL".to_owned()],
            keys: match by {
                AccountKey::Created => vec!["a.created_at", "a.id"],
                AccountKey::LastSignIn => vec!["l.at", "l.account"],
                // A few are sorted: the index of all names would be read for them to its end.
                AccountKey::Login if filter.is_of_few() => vec![sorted_login],
                AccountKey::Login => vec![login],
            },
            bound: BoundValues::default(),
        };
        query.conditions.extend(filter.role.map(|role| role.sql().to_owned()));
        query.conditions.extend(filter.state.map(|state| state.sql().to_owned()));
        if let Some(group) = &filter.group {
            query.in_group(group, by, filter.is_of_few());
        }
        if by == AccountKey::LastSignIn {
            // SQLite keeps the order of the two.
            query.from = "last_sign_ins l CROSS JOIN accounts a";
            query.conditions.push("l.account = a.id".to_owned());
        }
        if let Some(letters) = filter.login.as_ref().filter(|letters| !letters.is_empty()) {
            // What begins with them is before them with the last letter of all.
            let (first, last) =
                (query.bound.bind(letters.clone()), query.bound.bind(format!("{letters}{}", char::MAX)));
            query.conditions.push(format!("{login} >= {first} AND {login} < {last}"));
        }
        if let Some(phone) = &filter.phone {
            let phone = query.bound.bind(phone.as_str().to_owned());
            query.conditions.push(format!("a.phone = {phone}"));
        }
        query
    }

    fn in_group(&mut self, group: &str, by: AccountKey, of_few: bool) {
        let group = self.bound.bind(group.to_owned());
        let member = format!("m.account = a.id AND m.name = {group}");
        if of_few {
            self.conditions.push(format!("EXISTS (SELECT 1 FROM group_members m WHERE {member})"));
            return;
        }
        self.from = "group_members m CROSS JOIN accounts a";
        self.conditions.push(member);
        self.keys = if by == AccountKey::Login { vec!["m.login"] } else { vec!["m.created_at", "m.account"] };
    }

    fn after(&mut self, place: Vec<String>, greater: bool) {
        // SQLite would compare a text with a number.
        let cast = |(number, value): (usize, String)| match (number, self.keys.len()) {
            (0, 2) => format!("CAST({} AS BIGINT)", self.bound.bind(value)),
            _ => self.bound.bind(value),
        };
        let place: Vec<_> = place.into_iter().enumerate().map(cast).collect();
        let sign = if greater { '>' } else { '<' };
        self.conditions.push(format!("({}) {sign} ({})", self.keys.join(", "), place.join(", ")));
    }

    /// Which accounts, before anything else is read about them.
    fn ids(&self, direction: &str, limit: u32) -> String {
        let keys: Vec<_> = self.keys.iter().map(|key| format!("{key} {direction}")).collect();
        let places: Vec<_> =
            self.keys.iter().enumerate().map(|(at, key)| format!("{key} AS key_{at}")).collect();
        format!(
            "SELECT a.id AS listed, {} FROM {} WHERE {} ORDER BY {} LIMIT {limit}",
            places.join(", "),
            self.from,
            self.conditions.join(" AND "),
            keys.join(", ")
        )
    }

    fn sql(&self, ascending: bool, limit: u32) -> String {
        let direction = if ascending { "ASC" } else { "DESC" };
        let keys: Vec<_> = (0..self.keys.len()).map(|at| format!("key_{at} {direction}")).collect();
        format!(
            "SELECT a.*, g.names AS group_names, t.at AS last_sign_in,
            {} AS factor FROM ({}) AS page
            JOIN accounts a ON a.id = listed LEFT JOIN account_groups g ON g.account = listed
            LEFT JOIN last_sign_ins t ON t.account = listed ORDER BY {}",
            super::factor_sql::strongest_factor!("listed"),
            self.ids(direction, limit),
            keys.join(", ")
        )
    }
}

impl Accounts {
    /// Accounts after the cursor.
    pub async fn page(
        &self,
        filter: &AccountSearch,
        after: Option<AccountCursor>,
        limit: u32,
    ) -> Result<AccountPage, DbError> {
        // PostgreSQL accepts no NUL in a text, and no name contains one.
        if [&filter.login, &filter.group].into_iter().flatten().any(|text| text.contains('\0')) {
            return Ok(AccountPage::empty());
        }
        let by = if filter.takes(filter.by) { filter.by } else { AccountKey::Created };
        let ascending = (by == AccountKey::Login) != filter.reversed;
        let mut query = ListQuery::new(filter, by, &self.db);
        if let Some(AccountCursor { at, id }) = after {
            let place = match by {
                AccountKey::Login => self.by_id(id).await?.map(|last| vec![last.login.as_str().to_owned()]),
                AccountKey::Created | AccountKey::LastSignIn => Some(vec![at.0.to_string(), id.to_string()]),
            };
            let Some(place) = place else { return Ok(AccountPage::empty()) };
            query.after(place, ascending);
        }
        let sql = query.sql(ascending, limit + 1);
        let rows: Vec<ListedAccount> = on_db!(&self.db, pool => {
            let question = query_as(AssertSqlSafe(sql));
            query.bound.0.iter().fold(question, |question, value| question.bind(value)).fetch_all(pool).await
        })?;
        let place = |last: &ListedAccount| AccountCursor {
            at: last.last_sign_in.filter(|_| by == AccountKey::LastSignIn).unwrap_or(last.account.created_at),
            id: last.account.id,
        };
        Ok(AccountPage::of(rows.into_iter().map(Ok), limit, place)?)
    }

    /// The one of the accounts whose masked names show these letters: one of a name of up to four, two of a longer one.
    /// For administrators, who know no more of a name. There may be very many, so they are read in parts.
    pub async fn find_masked(
        &self,
        letters: &str,
        is_it: impl Fn(AccountId) -> bool + Send,
    ) -> Result<Option<Username>, DbError> {
        const A_PART: usize = 5_000;
        // PostgreSQL accepts no NUL in a text, and no name contains one.
        if letters.is_empty() || letters.contains('\0') {
            return Ok(None);
        }
        let (login, last) = (login_column(&self.db), format!("{letters}{}", char::MAX));
        let (mut first, mut sign) = (letters.to_owned(), ">=");
        loop {
            let sql = format!(
                "SELECT id, login FROM accounts a WHERE {login} {sign} $1 AND {login} < $2
                AND CASE WHEN length(login) < 5 THEN 1 ELSE 2 END = $3 ORDER BY {login} LIMIT {A_PART}"
            );
            let part: Vec<(AccountId, Username)> = on_db!(&self.db, pool => query_as(AssertSqlSafe(sql)).bind(&first)
                .bind(&last).bind(letters.chars().count() as i64).fetch_all(pool).await)?;
            if let Some((_, found)) = part.iter().find(|(id, _)| is_it(*id)) {
                return Ok(Some(found.clone()));
            }
            match part.last().filter(|_| part.len() == A_PART) {
                Some((_, login)) => (first, sign) = (login.as_str().to_owned(), ">"),
                None => return Ok(None),
            }
        }
    }

    /// From indexes alone. SQLite counts a table without looking at its rows.
    pub async fn totals(&self) -> Result<AccountTotals, DbError> {
        const SQL: &str = "SELECT (SELECT COUNT(*) FROM accounts),
            (SELECT COUNT(*) FROM accounts WHERE COALESCE(deleted_at, 0) > 0),
            (SELECT COUNT(*) FROM accounts WHERE disabled_at IS NOT NULL AND deleted_at IS NULL),
            (SELECT COUNT(*) FROM accounts WHERE admin = 1)";
        let (all, deleted, disabled, admins): (i64, i64, i64, i64) =
            on_db!(&self.db, pool => query_as(SQL).fetch_one(pool).await)?;
        let count = i64::unsigned_abs;
        Ok(AccountTotals { all: count(all - deleted), disabled: count(disabled), admins: count(admins) })
    }

    /// Groups that somebody is in, after that name, in alphabetical order.
    pub async fn group_sizes(&self, after: &str, limit: u32) -> Result<Vec<(String, i64)>, DbError> {
        const SQL: &str = "SELECT name, COUNT(*) FROM group_members WHERE name > $1
            GROUP BY name ORDER BY name LIMIT $2";
        Ok(on_db!(&self.db, pool => query_as(SQL).bind(after).bind(i64::from(limit)).fetch_all(pool).await)?)
    }

    /// The names of those alone, each found by one step into the index, however many are in it.
    pub async fn group_names(&self, limit: u32) -> Result<Vec<String>, DbError> {
        const SQL: &str = "WITH RECURSIVE names (name) AS (SELECT MIN(name) FROM group_members UNION ALL
            SELECT (SELECT MIN(m.name) FROM group_members m WHERE m.name > names.name) FROM names
            WHERE names.name IS NOT NULL) SELECT name FROM names WHERE name IS NOT NULL LIMIT $1";
        Ok(on_db!(&self.db, pool => query_scalar(SQL).bind(i64::from(limit)).fetch_all(pool).await)?)
    }

    /// How many accounts are in a group.
    pub async fn group_size(&self, name: &str) -> Result<u64, DbError> {
        const SQL: &str = "SELECT COUNT(*) FROM group_members WHERE name = $1";
        let count: i64 = on_db!(&self.db, pool => query_scalar(SQL).bind(name).fetch_one(pool).await)?;
        Ok(count.unsigned_abs())
    }
}

#[cfg(test)]
#[path = "list_tests.rs"]
mod tests;
