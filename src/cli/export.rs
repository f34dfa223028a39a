//! Telemetry that is exported while the server runs, in builds that can.

#[cfg(feature = "otlp")]
pub use with::{OtlpExport, open};
#[cfg(not(feature = "otlp"))]
pub use without::{OtlpExport, open};

#[cfg(feature = "otlp")]
mod with {
    use gatehouse::app::instance_name;
    use gatehouse::clock::Clock;
    use gatehouse::config::Settings;
    use gatehouse::otlp::{Otlp, RunningOtlp};
    use metrics_exporter_prometheus::PrometheusHandle;

    use crate::cli::CliFailure;
    use crate::cli::log::SpanLayer;

    pub struct OtlpExport(Option<Otlp>);

    pub struct RunningOtlpExport(Option<RunningOtlp>);

    pub fn open(settings: &Settings) -> Result<(Option<SpanLayer>, OtlpExport), CliFailure> {
        let opened = Otlp::open(&settings.telemetry, instance_name(settings), Clock::System);
        let (export, spans) = opened.map_err(CliFailure::unusable)?.unzip();
        Ok((spans, OtlpExport(export)))
    }

    impl OtlpExport {
        pub fn start(self, metrics: &PrometheusHandle) -> RunningOtlpExport {
            RunningOtlpExport(self.0.map(|export| export.start(metrics.clone())))
        }
    }

    impl RunningOtlpExport {
        pub async fn finish(self) {
            if let Some(running) = self.0 {
                running.finish().await;
            }
        }
    }
}

/// The configuration refuses a receiver.
#[cfg(not(feature = "otlp"))]
mod without {
    use gatehouse::config::Settings;
    use metrics_exporter_prometheus::PrometheusHandle;

    use crate::cli::CliFailure;
    use crate::cli::log::SpanLayer;

    pub struct OtlpExport;

    pub fn open(_settings: &Settings) -> Result<(Option<SpanLayer>, OtlpExport), CliFailure> {
        Ok((None, OtlpExport))
    }

    impl OtlpExport {
        pub const fn start(self, _metrics: &PrometheusHandle) -> Self {
            self
        }

        pub async fn finish(self) {}
    }
}
