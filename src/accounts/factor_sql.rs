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

/// Whether a factor that was proved is still there: the passkey, the app with that secret, the recovery codes of that
/// hand-out. False if nobody knows which it was. Columns are named with their table: `passkeys` has some of the same names.
macro_rules! proof_holds {
    ($account:literal, $method:literal, $credential:literal) => {
        concat!(
            "(CASE ",
            $method,
            " WHEN 'passkey' THEN EXISTS (SELECT 1 FROM passkeys WHERE account = ",
            $account,
            " AND id = ",
            $credential,
            ") WHEN 'totp' THEN EXISTS (SELECT 1 FROM totp WHERE account = ",
            $account,
            " AND secret IS NOT NULL AND CAST(confirmed_at AS TEXT) = ",
            $credential,
            ") ELSE EXISTS (SELECT 1 FROM recovery_codes WHERE account = ",
            $account,
            " AND code_hash = ",
            $credential,
            ") END)"
        )
    };
}

/// Whether a browser's sign-ins are not asked for a second step: trusted by a factor that is still there, or by an older
/// instance, and not after wrong passwords.
macro_rules! is_trusted {
    ($account:literal, $device:literal, $now:literal) => {
        concat!(
            "EXISTS (SELECT 1 FROM trusted_devices trust WHERE trust.account = ",
            $account,
            " AND trust.device = ",
            $device,
            " AND trust.until > ",
            $now,
            " AND (trust.method IS NULL OR ",
            $crate::accounts::factor_sql::proof_holds!($account, "trust.method", "trust.credential"),
            ") AND NOT EXISTS (SELECT 1 FROM device_failures WHERE account = ",
            $account,
            " AND device = ",
            $device,
            " AND spent_at IS NOT NULL))"
        )
    };
}

/// What a session has proved as columns of a row, for `ProvedFactors`. `$words` is its row of `session_proofs`, which counts
/// beside the others where an older instance wrote it.
macro_rules! proved_columns {
    ($session:literal, $account:literal, $words:literal) => {
        concat!(
            "(SELECT MAX(proof.at) FROM factor_proofs proof WHERE proof.session = ",
            $session,
            " AND proof.method = 'passkey' AND ",
            $crate::accounts::factor_sql::proof_holds!($account, "proof.method", "proof.credential"),
            ") AS passkey_at, (SELECT MAX(proof.at) FROM factor_proofs proof WHERE proof.session = ",
            $session,
            " AND proof.method <> 'passkey' AND ",
            $crate::accounts::factor_sql::proof_holds!($account, "proof.method", "proof.credential"),
            ") AS code_at, CASE WHEN ",
            $words,
            ".factor_at <> COALESCE(",
            $words,
            ".noted_at, -1) THEN ",
            $words,
            ".methods END AS word, ",
            $words,
            ".factor_at, ",
            $words,
            ".by_passkey"
        )
    };
}

pub(super) use {
    asks_factor, factor_columns, has_factor, is_trusted, must_have_factor, proof_holds, proved_columns,
    strongest_factor,
};
