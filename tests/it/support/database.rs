//! A database for one test.

use gatehouse::entropy::Entropy;

/// SQLite in the folder; or, where `GATEHOUSE_TEST_POSTGRES` names a server, a database made there.
pub async fn database(folder: &tempfile::TempDir) -> String {
    let Ok(server) = std::env::var("GATEHOUSE_TEST_POSTGRES") else {
        return format!("sqlite://{}", folder.path().join("test.db").display());
    };
    let mut url = url::Url::parse(&server).unwrap();
    let name = format!("gatehouse_{:016x}", u64::from_be_bytes(Entropy::Os.bytes()));
    url.set_path("/postgres");
    let pool = sqlx::PgPool::connect(url.as_str()).await.unwrap();
    let create = sqlx::AssertSqlSafe(format!("CREATE DATABASE {name}"));
    sqlx::query(create).execute(&pool).await.unwrap();
    url.set_path(&name);
    url.into()
}
