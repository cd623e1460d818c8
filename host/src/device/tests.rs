//! What the grammar takes, and where it points when it does not.

use super::*;

fn sessions(text: &str) -> Vec<(String, Vec<(u32, u32)>)> {
    let list: DeviceList = text.parse().unwrap();
    let device = |device: &Device| {
        let sessions = device.sessions().map(|at| (at.core, at.session));
        (device.name.clone(), sessions.collect())
    };
    list.devices().iter().map(device).collect()
}

#[test]
fn plain_devices() {
    assert_eq!(sessions("HTP0"), [("HTP0".into(), vec![(0, 0)])]);
    let two = [("HTP1".into(), vec![(1, 0)]), ("HTP0:2".into(), vec![(0, 2)])];
    assert_eq!(sessions(" HTP1 ,\tHTP0:2\n"), two);
    assert_eq!(DeviceList::default(), "HTP0".parse().unwrap());
}

#[test]
fn a_number_is_sessions_on_core_0() {
    let three = [("HTP0", 0), ("HTP0:1", 1), ("HTP0:2", 2)];
    let three = three.map(|(name, session)| (name.to_owned(), vec![(0, session)]));
    assert_eq!(sessions("3"), three);
    assert_eq!(sessions("16").len(), 16);
}

#[test]
fn groups() {
    assert_eq!(sessions("NPU[0-1]"), [("NPU".into(), vec![(0, 0), (1, 0)])]);
    let both = [
        ("a".into(), vec![(3, 1), (0, 1), (1, 1)]),
        ("HTP3".into(), vec![(3, 0)]),
    ];
    assert_eq!(sessions("a[3, 0-1:1], HTP3"), both);
    assert_eq!(sessions("one[2]"), [("one".into(), vec![(2, 0)])]);
}

#[test]
fn errors_point_at_the_fault() {
    let cases = [
        ("", 0),
        ("  ", 2),
        ("0", 0),
        ("17", 0),
        ("2,HTP0", 1),
        ("99999999999", 0),
        ("HTP", 3),
        ("HTPx", 3),
        ("HTP-1", 3),
        ("HTP0x", 4),
        ("HTP16", 3),
        ("HTP0:", 5),
        ("HTP0:99999999999", 5),
        ("HTP0,", 5),
        ("HTP0,,HTP1", 5),
        ("HTP0;HTP1", 4),
        ("htp0", 0),
        ("HTP0,HTP0", 5),
        ("HTP0,a[1,0]", 5),
        ("a[0],a[1]", 5),
        ("[0]", 0),
        ("a:b[0]", 1),
        ("a[]", 2),
        ("a[0", 3),
        ("a[0-]", 4),
        ("a[2-1]", 2),
        ("a[0-100000000]", 4),
        ("a[0,0]", 4),
        ("a[0:1:2]", 5),
        ("a[0]]", 4),
        ("HTP0\u{e9}", 4),
    ];
    for (text, at) in cases {
        let error = text.parse::<DeviceList>().unwrap_err();
        assert_eq!(error.at, at, "{error}");
    }
}

#[test]
fn the_mark_stands_below_the_fault() {
    let error = "HTP0, HTPx".parse::<DeviceList>().unwrap_err().to_string();
    assert_eq!(
        error,
        "device list, character 10: expected a core's number\n  HTP0, HTPx\n           ^"
    );
}

proptest::proptest! {
    /// Any text is a list or an error inside the text.
    #[test]
    fn any_text(text in "[HTP0-9:,\\[\\]\\- a]{0,24}") {
        match text.parse::<DeviceList>() {
            Ok(list) => assert!(!list.devices().is_empty()),
            Err(error) => assert!(error.at <= text.len() && !error.to_string().is_empty()),
        }
    }
}
