//! An actix-web application behind the middleware.

mod counting;
mod limits;
mod outage;
mod subjects;

use std::sync::Arc;
use std::time::Duration;

use actix_web::dev::{ServerHandle, ServiceRequest};
use actix_web::web::{self, Data, Query};
use actix_web::{App, Error, HttpResponse, HttpServer};
use gatehouse_limiter::middleware::RateLimit;
use gatehouse_limiter::middleware::Subject;
use gatehouse_limiter::{Rule, RuleAction, WindowStore};
use serde::Deserialize;
use tokio::sync::{Semaphore, watch};

use crate::support::answer::{Answer, http};

const MINUTE: Duration = Duration::from_secs(60);

/// The application on a free port, completely wrapped: `/articles` and `/articles/{id}` answer any method
/// with the status in the query, `/slow` with 401 once it is released.
struct Site {
    url: String,
    http: reqwest::Client,
    state: State,
    handle: ServerHandle,
}

#[derive(Clone)]
struct State {
    /// How many requests a handler has begun.
    handled: watch::Sender<usize>,
    let_go: Arc<Semaphore>,
}

#[derive(Deserialize)]
struct Wish {
    status: Option<u16>,
}

async fn answer(state: Data<State>, wish: Query<Wish>) -> HttpResponse {
    state.handled.send_modify(|count| *count += 1);
    HttpResponse::build(wish.status.unwrap_or(200).try_into().unwrap()).finish()
}

async fn slow(state: Data<State>) -> HttpResponse {
    state.handled.send_modify(|count| *count += 1);
    state.let_go.acquire().await.unwrap().forget();
    HttpResponse::Unauthorized().finish()
}

impl Site {
    fn behind<S: WindowStore + 'static>(rate: RateLimit<S>) -> Self {
        let state = State { handled: watch::Sender::new(0), let_go: Arc::new(Semaphore::new(0)) };
        let of_workers = state.clone();
        let server = HttpServer::new(move || {
            App::new()
                .app_data(Data::new(of_workers.clone()))
                .route("/articles", web::to(answer))
                .route("/articles/{id}", web::to(answer))
                .route("/slow", web::to(slow))
                .route("/{page}", web::to(answer))
                .wrap(rate.clone())
        });
        let server = server.workers(2).disable_signals().bind(("127.0.0.1", 0)).unwrap();
        let url = format!("http://{}", server.addrs()[0]);
        let server = server.run();
        let handle = server.handle();
        tokio::spawn(server);
        Self { url, http: http().build().unwrap(), state, handle }
    }

    async fn get(&self, path: &str) -> Answer {
        self.ask(path, &[]).await
    }

    async fn by(&self, user: &str, path: &str) -> Answer {
        self.ask(path, &[("x-user", user.as_bytes())]).await
    }

    async fn ask(&self, path: &str, headers: &[(&str, &[u8])]) -> Answer {
        let mut request = self.http.get(format!("{}{path}", self.url));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        Answer::read(request.send().await.unwrap()).await
    }

    /// The statuses of this many simultaneous requests, in order.
    async fn at_once(&self, count: usize, path: &str) -> Vec<u16> {
        let asked: Vec<_> =
            (0..count).map(|_| tokio::spawn(self.http.get(format!("{}{path}", self.url)).send())).collect();
        let mut statuses = Vec::with_capacity(count);
        for answer in asked {
            statuses.push(answer.await.unwrap().unwrap().status().as_u16());
        }
        statuses.sort_unstable();
        statuses
    }

    fn handled(&self) -> usize {
        *self.state.handled.borrow()
    }

    async fn until_handled(&self, count: usize) {
        self.state.handled.subscribe().wait_for(|handled| *handled >= count).await.unwrap();
    }

    /// A request on its own connection, whose response is not read.
    async fn send(&self, path: &str) -> tokio::net::TcpStream {
        use tokio::io::AsyncWriteExt;
        let host = self.url.strip_prefix("http://").unwrap();
        let mut stream = tokio::net::TcpStream::connect(host).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: {host}\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        stream
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        drop(self.handle.stop(false));
    }
}

/// The user that the caller claims to be; a request without one is not limited.
fn user(request: &ServiceRequest) -> Result<Option<Subject>, Error> {
    Ok(request.headers().get("x-user").map(|user| user.as_bytes().to_vec()))
}

fn a_minute(max: u32) -> Rule {
    Rule::sliding(max, MINUTE, RuleAction::Block)
}
