//! The words of FastRPC calls: literal values, and what is refused.

use hexloom_abi::fastrpc::{ArgCounts, RpcMethod, RpcRefusal, Scalars};

#[test]
fn words_have_their_literal_values() {
    for (method, number, word) in [
        (RpcMethod::Open, 0, 0x0002_0001),
        (RpcMethod::Close, 1, 0x0100_0010),
        (RpcMethod::Call, 2, 0x0201_0100),
    ] {
        assert_eq!(method.number(), number);
        assert_eq!(method.scalars(), Scalars(word));
        assert_eq!(RpcMethod::of(Scalars(word)), Ok(method));
        // Attributes of the call are the system's own.
        assert_eq!(RpcMethod::of(Scalars(word | 0xe000_0000)), Ok(method));
        assert_eq!(
            usize::from(number),
            RpcMethod::ALL.iter().position(|&m| m == method).unwrap()
        );
    }
    let totals = RpcMethod::ALL.map(|method| method.args().total());
    assert_eq!(totals, [3, 1, 2]);
}

#[test]
fn every_part_of_a_word_comes_back() {
    let args = ArgCounts {
        n_inputs: 255,
        n_outputs: 1,
        n_handles_in: 15,
        n_handles_out: 7,
    };
    let word = Scalars::new(31, args);
    assert_eq!(word, Scalars(0x1fff_01f7));
    assert_eq!((word.method(), word.args(), word.args().total()), (31, args, 278));
}

/// One bit of a good word changed makes another method or other arguments, never the same call.
#[test]
fn wrong_counts_and_unknown_methods_are_refused() {
    for method in RpcMethod::ALL {
        for bit in 0..29 {
            let found = RpcMethod::of(Scalars(method.scalars().0 ^ 1 << bit));
            assert!(found.is_err(), "{method:?}, bit {bit}: {found:?}");
        }
    }
    assert_eq!(RpcMethod::of(Scalars(0x0300_0000)), Err(RpcRefusal::UnknownMethod));
    assert_eq!(RpcMethod::of(Scalars(0x0201_0000)), Err(RpcRefusal::BadArguments));
}

#[test]
fn refusals_have_the_codes_of_the_dsp_side() {
    let codes = [RpcRefusal::BadArguments, RpcRefusal::UnknownMethod, RpcRefusal::Busy].map(RpcRefusal::code);
    assert_eq!(codes, [0x8000_040e, 0x8000_0414, 0x8000_0420]);
}
