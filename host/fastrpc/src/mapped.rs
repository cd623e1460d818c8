//! Which file the driver library is: the one that its code was mapped from, whatever name it was asked for by.

use std::path::PathBuf;

/// The file that holds `address`, when the system tells.
pub(crate) fn file(address: usize) -> Option<PathBuf> {
    let maps = std::fs::read("/proc/self/maps").ok()?;
    file_in(&String::from_utf8_lossy(&maps), address)
}

/// The same in the text of `/proc/self/maps`: lines of range, access, offset, device, inode and path.
fn file_in(maps: &str, address: usize) -> Option<PathBuf> {
    let holds = |line: &&str| {
        let range = line.split(' ').next().and_then(|range| range.split_once('-'));
        let hex = |digits| usize::from_str_radix(digits, 16).ok();
        range.is_some_and(|(from, to)| {
            hex(from)
                .zip(hex(to))
                .is_some_and(|(from, to)| (from..to).contains(&address))
        })
    };
    let line = maps.lines().find(holds)?;
    // No field before the path has a slash, and memory that is no file's has no path that begins with one.
    line.find('/').map(|at| PathBuf::from(&line[at..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_that_holds_an_address_names_the_file() {
        let maps = "55d0000-55d2000 r-xp 00001000 fe:00 17    /usr/bin/a b\n\
                    7f10-7f20 rw-p 00000000 00:00 0 \n7f20-7f30 rw-p 00000000 00:00 0    [heap]\nnonsense\n";
        assert_eq!(file_in(maps, 0x55d_1fff), Some("/usr/bin/a b".into()));
        for nowhere in [0x7f18, 0x7f28, 0x55d_2000, 0] {
            assert_eq!(file_in(maps, nowhere), None, "{nowhere:#x}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_program_is_a_file() {
        let address = file as fn(usize) -> Option<PathBuf> as usize;
        let program = std::env::current_exe().expect("a program");
        assert_eq!(
            file(address).map(|path| path.canonicalize().ok()),
            Some(program.canonicalize().ok())
        );
    }
}
