//! Whether an account has a second factor, must have one, and is asked for it: written once, for every statement that
//! decides about it.

/// Whether an account has a factor. `$account` is its id, in SQL.
macro_rules! has_factor {
    ($account:literal) => {
        concat!("(", $crate::accounts::factor_sql::strongest_factor!($account), " IS NOT NULL)")
    };
}

/// The strongest that it has, but for recovery codes.
macro_rules! strongest_factor {
    ($account:literal) => {
        concat!(
            "CASE WHEN EXISTS (SELECT 1 FROM passkeys WHERE account = ",
            $account,
            ") THEN 'passkey' WHEN EXISTS (SELECT 1 FROM totp WHERE account = ",
            $account,
            " AND secret IS NOT NULL) THEN 'totp' END"
        )
    };
}

/// Whether it must have one. `$of` is `FactorSettings::required_of`. Names of groups have no wildcard in them.
macro_rules! must_have_factor {
    ($account:literal, $of:literal) => {
        concat!(
            "(",
            $of,
            " <> '' AND (",
            $of,
            " LIKE '%,everyone,%' OR EXISTS (SELECT 1 FROM accounts WHERE id = ",
            $account,
            " AND admin = 1 AND ",
            $of,
            " LIKE '%,admins,%') OR EXISTS (SELECT 1 FROM group_members WHERE account = ",
            $account,
            " AND ",
            $of,
            " LIKE '%,group:' || name || ',%')))"
        )
    };
}

/// Whether its sign-ins are asked for one.
macro_rules! asks_factor {
    ($account:literal, $of:literal) => {
        concat!(
            "(EXISTS (SELECT 1 FROM factor_policies WHERE account = ",
            $account,
            " AND required > 0) OR (",
            $crate::accounts::factor_sql::must_have_factor!($account, $of),
            " AND ",
            $crate::accounts::factor_sql::has_factor!($account),
            "))"
        )
    };
}

/// What it has and what it must have as columns of a row: `strongest`, `must_have` and `since`.
macro_rules! factor_columns {
    ($account:literal, $of:literal) => {
        concat!(
            $crate::accounts::factor_sql::strongest_factor!($account),
            " AS strongest, CAST(CASE WHEN ",
            $crate::accounts::factor_sql::must_have_factor!($account, $of),
            " THEN 1 ELSE 0 END AS BIGINT) AS must_have,
            (SELECT since FROM factor_policies WHERE account = ",
            $account,
            ") AS since"
        )
    };
}

pub(super) use {asks_factor, factor_columns, has_factor, must_have_factor, strongest_factor};
