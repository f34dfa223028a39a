//! Telemetry that is exported while the server runs, in builds that can.

#[cfg(feature = "otlp")]
pub use with::{Export, open};
#[cfg(not(feature = "otlp"))]
pub use without::{Export, open};

#[cfg(feature = "otlp")]
mod with {
    use gatehouse::app::instance_name;
    use gatehouse::clock::Clock;
    use gatehouse::config::Settings;
    use gatehouse::otlp::{Otlp, RunningOtlp};
    use metrics_exporter_prometheus::PrometheusHandle;

    use crate::cli::CliFailure;
    use crate::cli::log::SpanLayer;

    pub struct Export(Option<Otlp>);

    pub struct RunningExport(Option<RunningOtlp>);

    pub fn open(settings: &Settings) -> Result<(Option<SpanLayer>, Export), CliFailure> {
        let opened = Otlp::open(&settings.telemetry, instance_name(settings), Clock::System);
        let (export, spans) = opened.map_err(CliFailure::unusable)?.unzip();
        Ok((spans, Export(export)))
    }

    impl Export {
        pub fn start(self, metrics: &PrometheusHandle) -> RunningExport {
            RunningExport(self.0.map(|export| export.start(metrics.clone())))
        }
    }

    impl RunningExport {
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

    pub struct Export;

    pub fn open(_settings: &Settings) -> Result<(Option<SpanLayer>, Export), CliFailure> {
        Ok((None, Export))
    }

    impl Export {
        pub const fn start(self, _metrics: &PrometheusHandle) -> Self {
            self
        }

        pub async fn finish(self) {}
    }
}
