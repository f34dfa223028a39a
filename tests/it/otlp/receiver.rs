//! An OpenTelemetry receiver.

use std::sync::{Arc, Mutex};

use actix_web::dev::ServerHandle;
use actix_web::{App, HttpRequest, HttpResponse, HttpServer, web};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value::Value};
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;

use crate::support::ports::free_port;
use crate::support::process::{Home, Running};

/// What a receiver does with an export.
#[derive(Clone, Copy, PartialEq)]
pub enum Mood {
    Accepts,
    Fails,
    /// Knows only the path of traces.
    TakesTraces,
    /// Reads the request, and never answers.
    Hangs,
}

pub struct Receiver {
    pub url: String,
    pub got: Arc<Mutex<Vec<ReceivedExport>>>,
    handle: ServerHandle,
}

#[derive(Clone)]
pub struct ReceivedExport {
    pub path: String,
    pub authorization: String,
    pub body: Vec<u8>,
}

impl Receiver {
    pub fn start(mood: Mood) -> Self {
        let got = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&got);
        let answer = move |request: HttpRequest, body: web::Bytes| {
            let kept = Arc::clone(&kept);
            async move {
                let header = |name| request.headers().get(name).map_or("", |value| value.to_str().unwrap());
                assert_eq!(header("content-type"), "application/x-protobuf");
                kept.lock().unwrap().push(ReceivedExport {
                    path: request.path().to_owned(),
                    authorization: header("authorization").to_owned(),
                    body: body.to_vec(),
                });
                match mood {
                    Mood::TakesTraces if request.path() != "/v1/traces" => HttpResponse::NotFound().finish(),
                    Mood::Accepts | Mood::TakesTraces => HttpResponse::Ok().finish(),
                    Mood::Fails => HttpResponse::InternalServerError().body("no"),
                    Mood::Hangs => std::future::pending().await,
                }
            }
        };
        let app = move || {
            let limit = web::PayloadConfig::new(1 << 24);
            App::new().app_data(limit).default_service(web::to(answer.clone()))
        };
        let port = free_port();
        let server =
            HttpServer::new(app).workers(1).disable_signals().bind(("127.0.0.1", port)).unwrap().run();
        let handle = server.handle();
        tokio::spawn(server);
        Self { url: format!("http://127.0.0.1:{port}"), got, handle }
    }

    pub fn exports(&self, path: &str) -> Vec<ReceivedExport> {
        self.got.lock().unwrap().iter().filter(|export| export.path == path).cloned().collect()
    }

    pub fn spans(&self) -> Vec<Span> {
        let requests = self.exports("/v1/traces").into_iter();
        let requests =
            requests.map(|export| ExportTraceServiceRequest::decode(export.body.as_slice()).unwrap());
        let scopes = requests.flat_map(|request| request.resource_spans).flat_map(|of| of.scope_spans);
        scopes.flat_map(|of| of.spans).collect()
    }

    /// The spans of requests, by their names.
    pub fn requests(&self, name: &str) -> Vec<Span> {
        self.spans().into_iter().filter(|span| span.name == name).collect()
    }

    /// A home of a server that exports to it.
    pub fn home(&self) -> Home {
        let mut home = Home::new();
        home.set("GATEHOUSE__TELEMETRY__OTLP_ENDPOINT", &self.url);
        home
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        drop(self.handle.stop(false));
    }
}

pub async fn end(mut running: Running) -> String {
    running.signal("TERM");
    assert_eq!(running.ended().await.code(), Some(0), "{}", running.stderr());
    running.stderr()
}

pub fn attribute(attributes: &[KeyValue], name: &str) -> String {
    let found = attributes.iter().find(|attribute| attribute.key == name);
    match found.and_then(|attribute| attribute.value.clone()?.value) {
        Some(Value::StringValue(text)) => text,
        Some(Value::IntValue(number)) => number.to_string(),
        None => String::new(),
        Some(other) => format!("{other:?}"),
    }
}
