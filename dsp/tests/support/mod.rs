//! What kernel tests share: a platform on std threads, random arrays with guards, and one check that every op goes through.

pub(crate) mod array;
pub(crate) mod case;
pub(crate) mod platform;
pub(crate) mod weights;

pub(crate) use array::{Fill, Spec};
pub(crate) use case::{Case, check};

/// One test per line: `name: cases;` where `cases` is anything that iterates over [`Case`].
macro_rules! kernel_tests {
    ($($name:ident: $cases:expr;)*) => {
        $(#[test]
        fn $name() {
            for case in $cases {
                $crate::support::check(&case);
            }
        })*
    };
}
pub(crate) use kernel_tests;
