//! Packages of small files: sealed, opened, packed, signed, and spoilt.

use super::super::archive;
use super::*;
use crate::firmware::elf::sample;

/// A folder with a package in it; gone with the value.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("hexloom-package-{name}-{}", std::process::id()));
        for folder in ["bin", "dsp"] {
            fs::create_dir_all(path.join("p").join(folder)).unwrap();
        }
        fs::write(
            path.join("p/bin/hexloom"),
            "#!/bin/sh\n# GLIBC_2.17 GLIBC_2.34 GLIBC_2.4x\n",
        )
        .unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(path.join("p/bin/hexloom"), mode).unwrap();
        fs::write(path.join("p/dsp/libhexloom-v73.so"), sample::library()).unwrap();
        Self(path)
    }

    fn package(&self) -> Package {
        Package::seal(&self.0.join("p"), Target::LinuxArm64, "1.2.3", 7).unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn the_manifest_names_what_is_there() {
    let folder = Folder::new("names");
    let manifest = folder.package().manifest;
    assert_eq!((manifest.target.as_str(), manifest.abi_version), ("linux-arm64", 7));
    assert_eq!(manifest.glibc.as_deref(), Some("2.34"));
    let library = DeviceLibrary {
        arch: "v73".into(),
        path: "dsp/libhexloom-v73.so".into(),
        signer: Signer::None,
    };
    assert_eq!(manifest.device_libraries, [library]);
    let files: Vec<(&str, bool)> = manifest
        .files
        .iter()
        .map(|file| (&*file.path, file.executable))
        .collect();
    assert_eq!(files, [("bin/hexloom", true), ("dsp/libhexloom-v73.so", false)]);
    assert_eq!(manifest.files[0].sha256.len(), 64);
    assert_eq!(Package::open(&folder.0.join("p")).unwrap().manifest, manifest);
}

#[test]
fn a_package_that_is_not_whole_is_refused() {
    let folder = Folder::new("whole");
    folder.package();
    let path = folder.0.join("p");
    let refused = |what: &str| {
        let error = Package::open(&path).unwrap_err().to_string();
        assert!(error.contains(what), "{error}");
    };
    fs::write(path.join("bin/more"), "").unwrap();
    refused("bin/more");
    fs::remove_file(path.join("bin/more")).unwrap();
    fs::write(path.join("bin/hexloom"), "other").unwrap();
    refused("bin/hexloom");
    fs::remove_file(path.join("manifest.json")).unwrap();
    refused("cargo xtask dist");
}

#[test]
fn signers_are_kept_as_long_as_the_signature_is_there() {
    let folder = Folder::new("signers");
    let mut package = folder.package();
    let path = folder.0.join("p/dsp/libhexloom-v73.so");
    let mut signed = sample::library();
    sample::put(
        &mut signed,
        sample::SEGMENTS + 64 + 24,
        crate::firmware::elf::SIGNER_HASHES,
    );
    fs::write(&path, signed).unwrap();
    package.manifest.device_libraries[0].signer = Signer::Production;
    package.refresh().unwrap();
    assert_eq!(package.manifest.device_libraries[0].signer, Signer::Production);
    fs::write(&path, sample::library()).unwrap();
    fs::write(path.with_file_name("testsig-0x12ab.so"), sample::library()).unwrap();
    package.refresh().unwrap();
    assert_eq!(package.manifest.device_libraries[0].signer, Signer::None);
    assert_eq!(package.manifest.device_libraries.len(), 1);
    assert_eq!(package.manifest.test_signatures, ["0x12ab"]);
}

#[test]
fn the_same_files_give_the_same_archive() {
    let (one, other) = (Folder::new("one"), Folder::new("other"));
    // Made in another order, at another time.
    fs::remove_file(other.0.join("p/bin/hexloom")).unwrap();
    fs::copy(one.0.join("p/bin/hexloom"), other.0.join("p/bin/hexloom")).unwrap();
    let archives = [&one, &other].map(|folder| fs::read(archive::write(&folder.package()).unwrap()).unwrap());
    assert_eq!(archives[0], archives[1]);
    let mut unpacked = tar::Archive::new(flate2::read::GzDecoder::new(&archives[0][..]));
    let names: Vec<String> = unpacked
        .entries()
        .unwrap()
        .map(|entry| entry.unwrap().path().unwrap().to_string_lossy().into_owned())
        .collect();
    assert_eq!(names, ["p/manifest.json", "p/bin/hexloom", "p/dsp/libhexloom-v73.so"]);
}
