//! How a statement is run on either database.

/// Runs one expression on the database behind a `Db` (its pool) or a `Tx` (its connection), so that each
/// statement is written once: `on_db!(&self.db, pool => query(SQL).execute(pool).await)`.
macro_rules! on_db {
    ($db:expr, $pool:ident => $run:expr) => {
        match $db {
            $crate::db::Db::Sqlite($crate::db::DbPools { all: $pool, .. }) => {
                $crate::db::traced!("sqlite", $run)
            }
            $crate::db::Db::Postgres(pools) => match pools.reachable() {
                Ok($pool) => $crate::db::traced!("postgresql", $run),
                Err(error) => Err(error),
            },
        }
    };
}
macro_rules! on_tx {
    ($tx:expr, $connection:ident => $run:expr) => {
        match $tx {
            $crate::db::Tx::Sqlite(tx) => {
                let $connection = &mut **tx;
                $crate::db::traced!("sqlite", $run)
            }
            $crate::db::Tx::Postgres(tx) => {
                let $connection = &mut **tx;
                $crate::db::traced!("postgresql", $run)
            }
        }
    };
}
/// In a span that names this line, if it is traced.
macro_rules! traced {
    ($system:literal, $run:expr) => {
        tracing::Instrument::instrument(async { $run }, $crate::spans::sql($system, file!(), line!())).await
    };
}
pub(crate) use {on_db, on_tx, traced};
