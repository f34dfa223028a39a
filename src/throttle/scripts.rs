//! The Lua scripts of the Redis store, each with their common beginning.

use redis::Script;

pub struct LuaScripts {
    pub reserve: Script,
    pub settle: Script,
    pub peek: Script,
    pub read: Script,
    pub restore: Script,
    pub finish_rebuild: Script,
}

macro_rules! with_log {
    ($script:expr) => {
        concat!(include_str!("../../lua/window.lua"), include_str!("../../lua/log.lua"), $script)
    };
}

const SOURCES: [&str; 6] = [
    concat!(
        include_str!("../../lua/window.lua"),
        include_str!("../../lua/refuse.lua"),
        include_str!("../../lua/log.lua"),
        include_str!("../../lua/reserve.lua"),
    ),
    with_log!(include_str!("../../lua/settle.lua")),
    with_log!(include_str!("../../lua/peek.lua")),
    with_log!(include_str!("../../lua/read.lua")),
    with_log!(include_str!("../../lua/restore.lua")),
    include_str!("../../lua/finish_rebuild.lua"),
];

impl Default for LuaScripts {
    fn default() -> Self {
        let [reserve, settle, peek, read, restore, finish_rebuild] = SOURCES.map(Script::new);
        Self { reserve, settle, peek, read, restore, finish_rebuild }
    }
}

impl LuaScripts {
    /// In the order of their sources.
    pub const fn all(&self) -> [&Script; 6] {
        let Self { reserve, settle, peek, read, restore, finish_rebuild } = self;
        [reserve, settle, peek, read, restore, finish_rebuild]
    }

    /// The text to load a script again that the server has lost.
    pub fn text_of(&self, script: &Script) -> &'static str {
        let index = self.all().iter().position(|other| other.get_hash() == script.get_hash());
        SOURCES[index.expect("one of the six")]
    }
}
