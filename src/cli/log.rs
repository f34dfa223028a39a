//! The log, and output on the terminal. A failure to write either stops nothing.

use std::ffi::OsStr;
use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use gatehouse::request_id::RequestId;
use tracing::subscriber::Interest;
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::filter::{FilterExt, dynamic_filter_fn};
use tracing_subscriber::fmt::format::{Format, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, MakeWriter};
use tracing_subscriber::layer::{Filter, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, Registry};

/// Lines that may wait for a slow reader, some two megabytes; further lines are lost, and counted.
const WAITING: usize = 8192;
/// How long writing the last lines may take at shutdown.
const LAST_LINES: Duration = Duration::from_secs(1);

/// A library that logs what it works on, telephone numbers, at any level.
const NEVER: &str = "rlibphonenumber";

pub type SpanLayer = Box<dyn Layer<Registry> + Send + Sync>;

/// What is logged if nobody asks for more. The state of Redis and of the config centre is reported by those who
/// use them; their clients log each attempt to connect to a server that is away. The dispatcher logs each request that
/// is not HTTP, which any stranger can send; it is answered 400, and that is all there is to it.
const UNASKED: &str = "info,actix_http::h1::dispatcher=off,nacos_sdk=off,redis=off";

/// Writes the log to standard error until it is dropped, on a thread of its own.
pub struct LogWriter(SyncSender<LogMessage>);

enum LogMessage {
    Line(Vec<u8>),
    /// All lines before it are written.
    Flush(SyncSender<()>),
}

impl LogWriter {
    /// `RUST_LOG` selects what is logged, within what is allowed. Spans go to `spans`, if somebody collects them.
    pub fn start(spans: Option<SpanLayer>) -> Self {
        let asked = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(UNASKED));
        let (lines, due) = sync_channel(WAITING);
        // Without a thread there is no log.
        let _ = std::thread::Builder::new().name("log".into()).spawn(move || write(&due));
        let colours = has_colours(io::stderr().is_terminal(), std::env::var_os("NO_COLOR").as_deref());
        let shown = tracing_subscriber::fmt::layer()
            .with_ansi(colours)
            .event_format(WithRequest(Format::default().with_ansi(colours)))
            .with_writer(LogLines(lines.clone()))
            .log_internal_errors(false)
            .with_filter(of_these(asked));
        let layers: Vec<_> = spans.into_iter().chain([shown.boxed()]).collect();
        tracing_subscriber::registry().with(layers).init();
        Self(lines)
    }
}

/// Only a terminal shows colours, unless its user does not want any (<https://no-color.org>).
fn has_colours(is_terminal: bool, no_color: Option<&OsStr>) -> bool {
    is_terminal && no_color.is_none_or(OsStr::is_empty)
}

impl Drop for LogWriter {
    fn drop(&mut self) {
        let (done, written) = sync_channel(1);
        if self.0.try_send(LogMessage::Flush(done)).is_ok() {
            let _ = written.recv_timeout(LAST_LINES);
        }
    }
}

struct WithRequest(Format);

impl<S, N> FormatEvent<S, N> for WithRequest
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut out: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let Some(id) = RequestId::current() else { return self.0.format_event(context, out, event) };
        let mut line = String::new();
        self.0.format_event(context, Writer::new(&mut line), event)?;
        writeln!(out, "{} request={}", line.trim_end(), id.as_str())
    }
}

/// Each line is judged when it is logged. One that is always logged would be judged by what this thread asked about
/// last (tokio-rs/tracing#2519), and sqlx asks after each query whether its own line is wanted.
fn of_these(asked: EnvFilter) -> impl Filter<Registry> {
    let sometimes =
        |event: &Metadata<'_>| if may_be_logged(event) { Interest::sometimes() } else { Interest::never() };
    asked.and(dynamic_filter_fn(|event, _| may_be_logged(event)).with_callsite_filter(sometimes))
}

/// Restricts what `RUST_LOG` asks for: libraries never log at `trace`, where they log the data that they read
/// and write, and one never logs at all.
fn may_be_logged(event: &Metadata<'_>) -> bool {
    // A span that no one listens to costs nothing.
    if event.is_span() {
        return false;
    }
    let target = event.target();
    let is_of = |library: &str| {
        target.strip_prefix(library).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
    };
    is_of("gatehouse") || (*event.level() <= Level::DEBUG && !is_of(NEVER))
}

fn write(due: &Receiver<LogMessage>) {
    let mut out = io::stderr();
    while let Ok(message) = due.recv() {
        match message {
            // The disk may have room again, so the next line is tried even if this one failed.
            LogMessage::Line(line) => count_lost(out.write_all(&line).is_err()),
            LogMessage::Flush(done) => drop(done.try_send(())),
        }
    }
}

fn count_lost(lost: bool) {
    if lost {
        metrics::counter!("gatehouse_log_lines_lost_total").increment(1);
    }
}

/// Passes lines on without waiting. Each event is one write.
#[derive(Clone)]
struct LogLines(SyncSender<LogMessage>);

impl<'a> MakeWriter<'a> for LogLines {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

impl Write for LogLines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let sent = self.0.try_send(LogMessage::Line(line.to_vec()));
        count_lost(matches!(sent, Err(TrySendError::Full(_) | TrySendError::Disconnected(_))));
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Prints a line on standard output, or returns why it cannot.
pub fn say(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.write_all(b"\n")?;
    out.flush()
}

/// Prints a line that may be lost: `println!` would panic if it cannot be written.
macro_rules! tell {
    ($($text:tt)*) => {
        let _ = $crate::cli::log::say(&format!($($text)*));
    };
}
pub(super) use tell;

#[cfg(test)]
mod tests {
    use tracing::callsite::Callsite;

    use super::*;

    #[test]
    fn colours_are_for_terminals_whose_user_wants_them() {
        assert!(has_colours(true, None) && has_colours(true, Some(OsStr::new(""))));
        assert!(!has_colours(true, Some(OsStr::new("1"))) && !has_colours(false, None));
    }

    #[test]
    fn what_a_library_works_on_is_never_logged() {
        for (target, lines) in [
            ("gatehouse::web", 1),
            ("rlibphonenumber", 0),
            ("rlibphonenumber_other", 1),
            ("hyper", 0),
            ("sqlx::query", 1),
        ] {
            assert_eq!(lines_with("trace,rlibphonenumber::util=trace", target), lines, "{target}");
        }
    }

    #[test]
    fn a_server_that_is_away_fills_no_log_by_default() {
        assert_eq!(lines_with(UNASKED, "redis::cluster"), 0);
        assert_eq!(lines_with("info", "redis::cluster"), 1);
    }

    #[test]
    fn a_line_is_not_lost_to_a_question_about_another() {
        let (sent, lines) = sync_channel(16);
        let shown = tracing_subscriber::fmt::layer()
            .with_writer(LogLines(sent))
            .with_filter(of_these(EnvFilter::new(UNASKED)));
        let _guard = tracing_subscriber::registry().with(shown).set_default();
        let other = tracing::callsite!(
            name: "query",
            kind: tracing::metadata::Kind::EVENT,
            target: "sqlx::query",
            level: Level::DEBUG,
            fields: message
        );
        for _ in 0..3 {
            // The `log` lines of libraries ask like this: each time, whatever was answered before.
            tracing::dispatcher::get_default(|dispatch| dispatch.enabled(other.metadata()));
            tracing::info!(target: "gatehouse::web", "a line");
        }
        assert_eq!(lines.try_iter().count(), 3);
    }

    /// How many lines it logs with this filter.
    fn lines_with(filter: &str, target: &str) -> usize {
        let (sent, lines) = sync_channel(16);
        let shown = tracing_subscriber::fmt::layer()
            .with_writer(LogLines(sent))
            .with_filter(of_these(EnvFilter::new(filter)));
        let _guard = tracing_subscriber::registry().with(shown).set_default();
        match target {
            "gatehouse::web" => tracing::trace!(target: "gatehouse::web", "a line"),
            "rlibphonenumber" => tracing::error!(target: "rlibphonenumber::util", "a line"),
            "rlibphonenumber_other" => tracing::debug!(target: "rlibphonenumber_other", "a line"),
            "hyper" => tracing::trace!(target: "hyper", "a line"),
            "redis::cluster" => {
                tracing::error!(target: "redis::cluster_handling::async_connection", "a line")
            }
            _ => tracing::debug!(target: "sqlx::query", "a line"),
        }
        lines.try_iter().count()
    }
}
