//! Where the emulator and its image are: named by the environment, else where `cargo xtask firmware` puts them.

use std::env;
use std::path::{Path, PathBuf};

use crate::EmuOptions;

/// The environment variable that names the image.
pub const IMAGE_VAR: &str = "HEXLOOM_EMULATOR_IMAGE";
/// The environment variable that moves the cache folder.
const CACHE_VAR: &str = "HEXLOOM_CACHE";
const QEMU: &str = "qemu-hexagon";
const IMAGE: &str = "firmware/hexloom-v67-emulator.elf";

/// What the emulator lacks here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FindError {
    /// No `qemu-hexagon` in any folder of `PATH`.
    #[error("{QEMU} is not on the PATH; `apt-get install qemu-user` installs it")]
    NoEmulator,
    /// The image that the environment names does not exist.
    #[error("{IMAGE_VAR} names {}, which does not exist; `cargo xtask firmware` builds the image", .0.display())]
    NoNamedImage(PathBuf),
    /// No image in the cache folder.
    #[error("there is no emulator image {} here or in a folder above; `cargo xtask firmware` builds it", .0.display())]
    NoImage(PathBuf),
}

impl EmuOptions {
    /// The emulator on the `PATH` and its image: `HEXLOOM_EMULATOR_IMAGE` if set, else in the cache folder, which is
    /// `HEXLOOM_CACHE` or `.cache` in the current folder or the nearest one above that has the image.
    pub fn find() -> Result<Self, FindError> {
        let cache = env::var_os(CACHE_VAR).filter(|folder| !folder.is_empty());
        let cache = cache.map_or_else(|| PathBuf::from(".cache"), PathBuf::from);
        let here = env::current_dir().unwrap_or_default();
        let image = match env::var_os(IMAGE_VAR).filter(|image| !image.is_empty()) {
            Some(named) => named_image(PathBuf::from(named))?,
            None => cached_image(&here, &cache.join(IMAGE))?,
        };
        let path = env::var_os("PATH").unwrap_or_default();
        let qemu = env::split_paths(&path)
            .map(|folder| folder.join(QEMU))
            .find(|program| program.is_file());
        let qemu = qemu.ok_or(FindError::NoEmulator)?;
        Ok(Self { qemu, image })
    }
}

fn named_image(path: PathBuf) -> Result<PathBuf, FindError> {
    if path.is_file() {
        Ok(path)
    } else {
        Err(FindError::NoNamedImage(path))
    }
}

/// `image` in `here` or the nearest folder above that has it; an absolute one is taken as it is.
fn cached_image(here: &Path, image: &Path) -> Result<PathBuf, FindError> {
    let mut all = here.ancestors().map(|folder| folder.join(image));
    all.find(|path| path.is_file())
        .ok_or_else(|| FindError::NoImage(image.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_looked_for_upwards() {
        let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let found = cached_image(&here, Path::new("src/find.rs")).unwrap();
        assert_eq!(found, here.join("find.rs"));
        let error = cached_image(&here, Path::new("no/such/image.elf")).unwrap_err();
        assert_eq!(error, FindError::NoImage("no/such/image.elf".into()));
        assert!(error.to_string().contains("cargo xtask firmware"), "{error}");
    }

    #[test]
    fn a_named_image_must_exist() {
        let error = named_image("/no/such/image.elf".into()).unwrap_err();
        assert!(error.to_string().contains("/no/such/image.elf"), "{error}");
    }
}
