//! whisper.cpp's own program on the back end, against its CPU back end: both must hear what espeak-ng said.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::Result;

use super::Loaded;
use crate::process;
use crate::steps::Outcome;

/// What is said. Whisper tiny hears it right from this voice.
const SENTENCE: &str = "My sister lives in a small house near the river.";
const VOICE: &[&str] = &["-v", "en-us", "-s", "140"];

pub(super) fn run(loaded: &Loaded<'_>, model: &Path, deadline: Instant) -> Result<Outcome> {
    let sound = Sound::new();
    process::run(say(loaded, &sound.0).arg(SENTENCE), deadline)?;
    let program = || loaded.peer.program("whisper-cli");
    let theirs = hear(program(), model, &sound.0, deadline)?;
    let ours = hear(loaded.with(program()), model, &sound.0, deadline)?;
    let mut outcome = Outcome::default();
    outcome.expect(theirs.text == SENTENCE, || {
        format!("whisper-cli on the CPU heard {theirs:?}, espeak-ng said {SENTENCE:?}: is the model converted right?")
    });
    outcome.expect(ours.text == theirs.text, || {
        format!("whisper-cli on hexloom heard {ours:?}, on the CPU {theirs:?}")
    });
    outcome.expect(ours.on_device && !theirs.on_device, || {
        format!("whisper-cli did not compute where it should: {ours:?}, {theirs:?}")
    });
    Ok(outcome)
}

fn say(loaded: &Loaded<'_>, sound: &Path) -> Command {
    let mut command = loaded.peer.program("espeak-ng");
    command.arg(format!("--path={}", loaded.peer.libraries().display()));
    command.args(VOICE).arg("-w").arg(sound);
    command
}

#[derive(Debug, Default, PartialEq)]
struct Heard {
    text: String,
    /// Whether the log tells that the graphs went to hexloom.
    on_device: bool,
}

impl Heard {
    /// Text stands behind its time, all else is the log.
    fn read(&mut self, line: &str) {
        self.on_device |= line.contains("using HEX0 backend");
        if let Some((_, text)) = line.strip_prefix('[').and_then(|line| line.split_once(']')) {
            self.text.push_str(text.trim());
        }
    }
}

fn hear(mut command: Command, model: &Path, sound: &Path, deadline: Instant) -> Result<Heard> {
    command.arg("-m").arg(model).arg("-f").arg(sound);
    command.args(["--threads", "2"]);
    let mut heard = Heard::default();
    process::run_lines(&mut command, deadline, |line| heard.read(line))?;
    Ok(heard)
}

/// A sound file, gone in the end.
struct Sound(PathBuf);

impl Sound {
    fn new() -> Self {
        let name = format!("hexloom-speech-{}.wav", std::process::id());
        Self(std::env::temp_dir().join(name))
    }
}

impl Drop for Sound {
    fn drop(&mut self) {
        // It may never have been written.
        let _ = std::fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_told_from_the_log() {
        let mut heard = Heard::default();
        for line in [
            "whisper_backend_init_gpu: using HEX0 backend",
            "main: processing 'a.wav' (58425 samples, 3.7 sec)",
            "[00:00:00.000 --> 00:00:03.240]   Hello.",
            "",
        ] {
            heard.read(line);
        }
        let text = "Hello.".to_owned();
        assert_eq!(heard, Heard { text, on_device: true });
    }
}
