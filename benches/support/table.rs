//! Tables in Markdown.

pub struct Table(Vec<String>);

impl Table {
    pub fn new(titles: &[&str]) -> Self {
        Self(vec![format!("| {} |", titles.join(" | ")), format!("|{}", "---|".repeat(titles.len()))])
    }

    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let cells: Vec<String> = cells.into_iter().collect();
        self.0.push(format!("| {} |", cells.join(" | ")));
    }

    pub fn print(self) {
        println!("{}", self.0.join("\n"));
    }
}

/// With commas, and a decimal below ten.
pub fn count(number: f64) -> String {
    if number > 0.0 && number < 10.0 && number.fract() != 0.0 {
        return format!("{number:.1}");
    }
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Two digits that count, more from ten per cent on; never rounded up to all.
pub fn per_cent(part: f64) -> String {
    let part = part * 100.0;
    if part == 0.0 || part >= 100.0 {
        return format!("{part:.0} %");
    }
    if part > 99.0 {
        return format!("{:.2} %", part.min(99.99));
    }
    let places = if part >= 10.0 { 1 } else { (1.0 - part.log10().floor()).min(5.0) as usize };
    format!("{part:.places$} %")
}
