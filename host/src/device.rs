//! Device lists: which sessions a program opens, in one line of text.
//!
//! ```text
//! list  = count | item { "," item }
//! count = 1 to 16                               that many sessions on core 0
//! item  = "HTP" core [ ":" session ]            one session on one core
//!       | name "[" cores [ ":" session ] "]"    a group: every core computes a part of each op's rows
//! cores = core [ "-" core ] { "," core [ "-" core ] }
//! ```
//! Blanks around items are skipped. Everything else that the grammar does not name is an error that points at it:
//! nothing is dropped, clamped or guessed.

use std::fmt;
use std::str::FromStr;

use crate::transport::SessionAt;

/// Devices in a list, cores of a group, and sessions on a core, at most.
pub const MAX_DEVICES: usize = 16;

/// One device: a session, or a group of them that computes as one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Device {
    /// Its name: `HTP0`, `HTP0:1`, or what stands before a group's bracket.
    pub name: String,
    /// The core that leads, and the number of the session on each core.
    pub at: SessionAt,
    /// The group's other cores.
    pub more_cores: Vec<u32>,
}

/// A list of devices, parsed; at least one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeviceList {
    devices: Vec<Device>,
}

/// A malformed list, with the place of the fault.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeviceListError {
    /// The list.
    pub text: String,
    /// Byte where the fault begins.
    pub at: usize,
    /// What is wrong there and what would be right.
    pub what: String,
}

impl DeviceList {
    /// The devices, in the order of the list.
    pub fn devices(&self) -> &[Device] {
        &self.devices
    }
}

impl Default for DeviceList {
    /// Core 0 alone.
    fn default() -> Self {
        let devices = vec![Device::plain(SessionAt::default())];
        Self { devices }
    }
}

impl FromStr for DeviceList {
    type Err = DeviceListError;

    fn from_str(text: &str) -> Result<Self, DeviceListError> {
        let mut reader = Reader { text, at: 0 };
        reader.blanks();
        if reader.peek().is_some_and(|c| c.is_ascii_digit()) {
            return reader.count();
        }
        let mut list = Self { devices: Vec::new() };
        loop {
            reader.blanks();
            let start = reader.at;
            let device = reader.item()?;
            list.add(device).map_err(|what| reader.error_at(start, what))?;
            reader.blanks();
            match reader.peek() {
                None => return Ok(list),
                Some(',') => reader.at += 1,
                Some(other) => return Err(reader.error(format!("expected \",\" or the end, found \"{other}\""))),
            }
        }
    }
}

impl DeviceList {
    /// Adds a device, unless its name or a session of it is in the list.
    fn add(&mut self, device: Device) -> Result<(), String> {
        if self.devices.len() == MAX_DEVICES {
            return Err(format!("more than {MAX_DEVICES} devices"));
        }
        if let Some(twin) = self.devices.iter().find(|known| known.name == device.name) {
            return Err(format!("a second device named \"{}\"", twin.name));
        }
        for at in device.sessions() {
            if let Some(owner) = self
                .devices
                .iter()
                .find(|known| known.sessions().any(|other| other == at))
            {
                let SessionAt { core, session } = at;
                return Err(format!(
                    "session {session} on core {core} belongs to \"{}\" already",
                    owner.name
                ));
            }
        }
        self.devices.push(device);
        Ok(())
    }
}

impl Device {
    /// Every session that it opens, the leading one first.
    pub fn sessions(&self) -> impl Iterator<Item = SessionAt> + '_ {
        let more = self.more_cores.iter().map(|&core| SessionAt { core, ..self.at });
        std::iter::once(self.at).chain(more)
    }

    fn plain(at: SessionAt) -> Self {
        let SessionAt { core, session } = at;
        let name = match session {
            0 => format!("HTP{core}"),
            _ => format!("HTP{core}:{session}"),
        };
        Self {
            name,
            at,
            more_cores: Vec::new(),
        }
    }
}

/// The text, and how far it was read.
struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl Reader<'_> {
    fn count(&mut self) -> Result<DeviceList, DeviceListError> {
        let start = self.at;
        let count = self.number("a number of sessions")?;
        self.blanks();
        if self.peek().is_some() {
            return Err(self.error("expected the end after a number of sessions".to_owned()));
        }
        if count == 0 || count as usize > MAX_DEVICES {
            return Err(self.error_at(start, format!("expected 1 to {MAX_DEVICES} sessions, found {count}")));
        }
        let devices = (0..count).map(|session| Device::plain(SessionAt { core: 0, session }));
        Ok(DeviceList {
            devices: devices.collect(),
        })
    }

    fn item(&mut self) -> Result<Device, DeviceListError> {
        let rest = &self.text[self.at..];
        let word = rest.find([',', '[']).map_or(rest, |end| &rest[..end]);
        if rest[word.len()..].starts_with('[') {
            return self.group(word);
        }
        if !rest.starts_with("HTP") {
            return Err(self.error("expected \"HTP\" and a core, as in HTP0, or a group, as in NPU[0-1]".to_owned()));
        }
        self.at += "HTP".len();
        let core = self.core()?;
        let session = self.session()?;
        Ok(Device::plain(SessionAt { core, session }))
    }

    fn group(&mut self, name: &str) -> Result<Device, DeviceListError> {
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        if name.is_empty() {
            return Err(self.error("expected the group's name before \"[\"".to_owned()));
        }
        if let Some(bad) = name.find(|c| !allowed(c)) {
            let what = "a group's name is letters, digits, \"_\", \"-\" and \".\"".to_owned();
            return Err(self.error_at(self.at + bad, what));
        }
        self.at += name.len() + 1;
        let mut cores: Vec<u32> = Vec::new();
        loop {
            self.blanks();
            let start = self.at;
            let first = self.core()?;
            let last = if self.take('-') { self.core()? } else { first };
            if last < first {
                return Err(self.error_at(start, format!("the range {first}-{last} runs backwards")));
            }
            for core in first..=last {
                if cores.contains(&core) {
                    return Err(self.error_at(start, format!("core {core} is in the group twice")));
                }
                cores.push(core);
            }
            self.blanks();
            if !self.take(',') {
                break;
            }
        }
        let session = self.session()?;
        self.blanks();
        if !self.take(']') {
            return Err(self.error("expected \",\", \":\" or \"]\"".to_owned()));
        }
        let more_cores = cores.split_off(1);
        Ok(Device {
            name: name.to_owned(),
            at: SessionAt {
                core: cores[0],
                session,
            },
            more_cores,
        })
    }

    fn core(&mut self) -> Result<u32, DeviceListError> {
        self.below_max("a core's number")
    }

    fn session(&mut self) -> Result<u32, DeviceListError> {
        match self.take(':') {
            true => self.below_max("a session's number"),
            false => Ok(0),
        }
    }

    fn below_max(&mut self, what: &str) -> Result<u32, DeviceListError> {
        let start = self.at;
        let number = self.number(what)?;
        if number as usize >= MAX_DEVICES {
            let highest = MAX_DEVICES - 1;
            return Err(self.error_at(start, format!("{what} is 0 to {highest}, found {number}")));
        }
        Ok(number)
    }

    fn number(&mut self, what: &str) -> Result<u32, DeviceListError> {
        let rest = &self.text[self.at..];
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        if digits == 0 {
            return Err(self.error(format!("expected {what}")));
        }
        let number = rest[..digits].parse();
        let number = number.map_err(|_| self.error(format!("{what} is too large")))?;
        self.at += digits;
        Ok(number)
    }

    fn take(&mut self, wanted: char) -> bool {
        let found = self.peek() == Some(wanted);
        self.at += if found { wanted.len_utf8() } else { 0 };
        found
    }

    fn peek(&self) -> Option<char> {
        self.text[self.at..].chars().next()
    }

    fn blanks(&mut self) {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start().len();
    }

    fn error(&self, what: String) -> DeviceListError {
        self.error_at(self.at, what)
    }

    fn error_at(&self, at: usize, what: String) -> DeviceListError {
        DeviceListError {
            text: self.text.to_owned(),
            at,
            what,
        }
    }
}

impl fmt::Display for DeviceListError {
    /// The fault, and below it the list with a mark under the place.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let column = self.text[..self.at].chars().count();
        writeln!(f, "device list, character {}: {}", column + 1, self.what)?;
        // Control characters would move the mark away from its place.
        let shown: String = self
            .text
            .chars()
            .map(|c| if c.is_control() { ' ' } else { c })
            .collect();
        write!(f, "  {shown}\n  {:column$}^", "")
    }
}

impl std::error::Error for DeviceListError {}

#[cfg(test)]
mod tests;
