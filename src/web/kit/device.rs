//! A `User-Agent` in words that its owner recognises: "Chrome on Windows".

use rust_i18n::t;

use crate::web::kit::locale::Locale;

/// The browser reports this itself, so nothing trusts it. The text shown is always one of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Device {
    browser: Option<&'static str>,
    system: Option<&'static str>,
}

/// The order matters: most browsers also name the ones that they descend from.
const BROWSERS: [(&str, &str); 14] = [
    ("MicroMessenger", "WeChat"),
    ("Edg", "Edge"),
    ("OPR/", "Opera"),
    ("SamsungBrowser", "Samsung Internet"),
    ("HuaweiBrowser", "Huawei Browser"),
    ("UCBrowser", "UC Browser"),
    ("QQBrowser", "QQ Browser"),
    ("FxiOS", "Firefox"),
    ("Firefox/", "Firefox"),
    ("CriOS", "Chrome"),
    ("Chrome/", "Chrome"),
    ("Safari/", "Safari"),
    ("curl/", "curl"),
    ("python-requests", "Python"),
];
const SYSTEMS: [(&str, &str); 9] = [
    ("iPhone", "iPhone"),
    ("iPad", "iPad"),
    ("HarmonyOS", "HarmonyOS"),
    ("OpenHarmony", "HarmonyOS"),
    ("Android", "Android"),
    ("Windows", "Windows"),
    ("CrOS", "ChromeOS"),
    ("Mac OS X", "macOS"),
    ("Linux", "Linux"),
];

impl Device {
    pub fn parse(user_agent: &str) -> Self {
        let find = |table: &[(&str, &'static str)]| {
            table.iter().find(|(mark, _)| user_agent.contains(mark)).map(|(_, name)| *name)
        };
        Self { browser: find(&BROWSERS), system: find(&SYSTEMS) }
    }

    pub fn text(&self, locale: Locale) -> String {
        match (self.browser, self.system) {
            (Some(browser), Some(system)) => {
                t!("device.both", locale = locale.code(), browser = browser, system = system).into_owned()
            }
            (Some(one), None) | (None, Some(one)) => one.to_owned(),
            (None, None) => locale.t("device.unknown").into_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn browsers_are_told_apart_from_those_they_descend_from() {
        let edge = "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36 Edg/140.0.0.0";
        assert_eq!(Device::parse(edge).text(Locale::En), "Edge on Windows");
        let safari = "Mozilla/5.0 (iPhone; CPU iPhone OS 19_0 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/19.0 Mobile/15E148 Safari/604.1";
        assert_eq!(Device::parse(safari).text(Locale::En), "Safari on iPhone");
    }

    #[test]
    fn nothing_of_what_was_sent_is_shown() {
        assert_eq!(Device::parse("<script>").text(Locale::En), "Unknown device");
    }
}
