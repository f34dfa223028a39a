//! Line charts as SVG, 800 wide, on white.

use std::fmt::Write as _;
use std::path::Path;

const SIZE: (f64, f64) = (800.0, 440.0);
/// Of the plot itself; right of it are the names of the lines.
const LEFT: f64 = 70.0;
const RIGHT: f64 = 520.0;
const TOP: f64 = 44.0;
const BOTTOM: f64 = 390.0;
/// Between names.
const LINE: f64 = 16.0;
/// Okabe and Ito: told apart by the colour-blind.
const COLOURS: [&str; 8] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#000000", "#e69f00", "#56b4e9", "#7a5c00"];
const DASHES: [&str; 2] = ["none", "6 3"];

pub struct Picture {
    pub title: String,
    pub x: String,
    pub y: String,
    /// From 1 on: what is less lies on the axis.
    pub logarithmic: bool,
    /// What stands below each value; empty: the days, every fifth.
    pub below: Vec<String>,
    pub series: Vec<Series>,
}

/// A value for each day, from day 1 on.
pub struct Series {
    pub name: String,
    pub values: Vec<f64>,
}

impl Picture {
    pub fn write(&self, file: &Path) -> std::io::Result<()> {
        std::fs::write(file, self.svg())
    }

    fn svg(&self) -> String {
        let (width, height) = SIZE;
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
             height=\"{height}\" font-family=\"sans-serif\" font-size=\"12\" role=\"img\">\n<title>{title}</title>\n\
             <rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>\n\
             <text x=\"{LEFT}\" y=\"24\" font-size=\"15\">{title}</text>\n",
            title = escaped(&self.title),
        );
        let days = self.series.iter().map(|series| series.values.len()).max().unwrap_or(1).max(2);
        self.axes(&mut svg, days);
        let x = |day: usize| LEFT + (RIGHT - LEFT) * day as f64 / (days - 1) as f64;
        let mut names: Vec<(f64, usize)> = Vec::new();
        for (number, series) in self.series.iter().enumerate() {
            let points: Vec<String> = series
                .values
                .iter()
                .enumerate()
                .map(|(day, &value)| format!("{:.1},{:.1}", x(day), self.height(value)))
                .collect();
            let (colour, dash) = style(number);
            let _ = writeln!(
                svg,
                "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"{}\" stroke-dasharray=\"{dash}\"/>",
                points.join(" "),
                if series.name.starts_with("Gatehouse") { "3" } else { "1.5" },
            );
            names.push((self.height(series.values.last().copied().unwrap_or(0.0)), number));
        }
        self.names(&mut svg, names);
        svg + "</svg>\n"
    }

    fn axes(&self, svg: &mut String, days: usize) {
        for value in self.ticks() {
            let y = self.height(value);
            let _ = writeln!(
                svg,
                "<line x1=\"{LEFT}\" x2=\"{RIGHT}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#dddddd\"/>\n\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                LEFT - 6.0,
                y + 4.0,
                crate::table::count(value),
            );
        }
        let by_day =
            || std::iter::once(1).chain((5..=days).step_by(5)).map(|day| (day, day.to_string())).collect();
        let below: Vec<(usize, String)> =
            if self.below.is_empty() { by_day() } else { (1..).zip(self.below.iter().cloned()).collect() };
        for (place, text) in below {
            let x = LEFT + (RIGHT - LEFT) * (place - 1) as f64 / (days - 1) as f64;
            let _ = writeln!(
                svg,
                "<text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{text}</text>",
                BOTTOM + 18.0
            );
        }
        let _ = writeln!(
            svg,
            "<line x1=\"{LEFT}\" x2=\"{RIGHT}\" y1=\"{BOTTOM}\" y2=\"{BOTTOM}\" stroke=\"#000000\"/>\n\
             <text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n\
             <text x=\"16\" y=\"{middle}\" text-anchor=\"middle\" transform=\"rotate(-90 16 {middle})\">{}</text>",
            f64::midpoint(LEFT, RIGHT),
            BOTTOM + 38.0,
            escaped(&self.x),
            escaped(&self.y),
            middle = f64::midpoint(TOP, BOTTOM),
        );
    }

    /// At the ends of the lines, from above, none over another.
    fn names(&self, svg: &mut String, mut names: Vec<(f64, usize)>) {
        names.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut free = TOP - LINE;
        let mut placed: Vec<f64> = Vec::new();
        for (y, _) in &names {
            free = (free + LINE).max(*y);
            placed.push(free);
        }
        let mut room = BOTTOM + LINE / 2.0;
        for y in placed.iter_mut().rev() {
            *y = y.min(room);
            room = *y - LINE;
        }
        for ((end, number), y) in names.into_iter().zip(placed) {
            let (colour, dash) = style(number);
            let _ = writeln!(
                svg,
                "<polyline points=\"{RIGHT},{end:.1} {:.1},{y:.1} {:.1},{y:.1}\" fill=\"none\" stroke=\"{colour}\" \
                 stroke-dasharray=\"{dash}\"/>\n<text x=\"{:.1}\" y=\"{:.1}\" fill=\"{colour}\">{}</text>",
                RIGHT + 10.0,
                RIGHT + 22.0,
                RIGHT + 26.0,
                y + 4.0,
                escaped(&self.series[number].name),
            );
        }
    }

    fn most(&self) -> f64 {
        let values = self.series.iter().flat_map(|series| series.values.iter().copied());
        values.fold(f64::MIN_POSITIVE, f64::max)
    }

    fn ticks(&self) -> Vec<f64> {
        if self.logarithmic {
            return (0..=self.most().log10().ceil() as i32).map(|power| 10_f64.powi(power)).collect();
        }
        let step = round_step(self.most() / 5.0);
        (0..=(self.most() / step).ceil() as u32).map(|tick| f64::from(tick) * step).collect()
    }

    fn height(&self, value: f64) -> f64 {
        let top = *self.ticks().last().unwrap_or(&1.0);
        let part = if self.logarithmic { value.max(1.0).log10() / top.log10() } else { value / top };
        BOTTOM - (BOTTOM - TOP) * part
    }
}

/// 1, 2 or 5 times a power of ten, at least as much.
fn round_step(least: f64) -> f64 {
    let power = 10_f64.powf(least.log10().floor());
    [1.0, 2.0, 5.0, 10.0].map(|step| step * power).into_iter().find(|&step| step >= least).unwrap_or(power)
}

fn style(number: usize) -> (&'static str, &'static str) {
    (COLOURS[number % COLOURS.len()], DASHES[number / COLOURS.len() % DASHES.len()])
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}
