//! The CSV of packing problems: reading, writing, solving, and what a wrong file is told.

mod plan_support;

use hexloom::plan::{Budget, Packing, Problem, ProblemCause, ProblemError, svg};
use plan_support::data;

const CAPACITY: u64 = 1_048_576;
/// What ggml's allocator needs for the same buffers.
const GGML: [(char, u64); 11] = [
    ('A', 1_837_056),
    ('B', 1_775_616),
    ('C', 1_822_720),
    ('D', 1_459_200),
    ('E', 1_945_600),
    ('F', 1_281_024),
    ('G', 1_294_336),
    ('H', 1_265_664),
    ('I', 1_840_128),
    ('J', 1_626_112),
    ('K', 1_892_352),
];

fn problem(name: &str) -> Problem {
    let text = std::fs::read_to_string(data(&format!("minimalloc/{name}.csv"))).expect("a file of tests/data");
    Problem::read(&text).expect("a problem")
}

fn check(problem: &Problem, packing: &Packing) {
    assert_eq!(problem.check(&packing.offsets), Ok(packing.height));
    assert!(packing.lower_bound <= packing.height);
}

#[test]
fn quick_passes_beat_ggml_on_every_instance() {
    let mut log_sum = 0.0;
    for (name, ggml) in GGML {
        let problem = problem(&format!("{name}.{CAPACITY}"));
        let packing = problem.pack(None, Budget::steps(0));
        check(&problem, &packing);
        assert!(packing.height <= ggml, "{name}: {}", packing.height);
        log_sum += (packing.height as f64 / CAPACITY as f64).ln();
    }
    let mean = (log_sum / 11.0_f64).exp();
    assert!(mean <= 1.30, "{mean}");
}

#[test]
fn all_eleven_are_placed_at_capacity() {
    for (name, _) in GGML {
        let problem = problem(&format!("{name}.{CAPACITY}"));
        let packing = problem.pack(Some(CAPACITY), Budget::steps(20_000_000));
        check(&problem, &packing);
        assert!(packing.height <= CAPACITY, "{name}: {}", packing.height);
    }
}

#[test]
fn equal_steps_give_equal_packings() {
    let problem = problem("K.1048576");
    let budget = Budget::steps(20_000);
    assert_eq!(problem.pack(None, budget), problem.pack(None, budget));
}

#[test]
fn the_example_fits_its_bound() {
    let problem = problem("input.12");
    let packing = problem.pack(Some(12), Budget::steps(1_000));
    check(&problem, &packing);
    assert_eq!((packing.height, packing.lower_bound), (12, 12));
}

#[test]
fn what_is_written_can_be_read() {
    let problem = problem("A.1048576");
    assert_eq!(Problem::read(&problem.write(None)), Ok(problem.clone()));
    let packing = problem.pack(None, Budget::steps(0));
    assert_eq!(Problem::read(&problem.write(Some(&packing))), Ok(problem));
}

#[test]
fn buffers_without_bytes_and_empty_problems_are_fine() {
    let problem = Problem::read("id,lower,upper,size\na,0,4,0\nb,0,4,8\nc,2,6,8\nd,5,6,0\n").expect("a problem");
    let packing = problem.pack(None, Budget::steps(100));
    check(&problem, &packing);
    assert_eq!(packing.height, 16);
    let empty = Problem::read("id,lower,upper,size\n").expect("an empty problem");
    assert_eq!(empty.pack(Some(1), Budget::steps(100)).height, 0);
}

#[test]
fn overlaps_are_found() {
    let problem = Problem::read("id,lower,upper,size\na,0,4,8\nb,3,6,8\nc,4,6,8\n").expect("a problem");
    let overlap = problem.check(&[0, 7, 20]).expect_err("a and b overlap");
    assert_eq!((overlap.first.as_str(), overlap.second.as_str()), ("a", "b"));
    assert_eq!(problem.check(&[0, 8, 0]), Ok(16));
}

#[test]
fn wrong_files_are_told_line_and_number() {
    let cases = [
        ("", 1, ProblemCause::MissingColumn("id")),
        ("id,lower,size\n", 1, ProblemCause::MissingColumn("upper")),
        (
            "id,lower,upper,size\na,0,1\n",
            2,
            ProblemCause::Columns { found: 3, expected: 4 },
        ),
        (
            "id,lower,upper,size\na,0,1,2\nb,0,1,-3\n",
            3,
            ProblemCause::Number {
                column: "size",
                value: "-3".into(),
            },
        ),
        (
            "id,lower,upper,size\na,5,5,2\n",
            2,
            ProblemCause::Interval {
                id: "a".into(),
                lower: 5,
                upper: 5,
            },
        ),
        (
            "id,lower,upper,size\na,0,1,2\n\na,0,1,2\n",
            4,
            ProblemCause::Twice("a".into()),
        ),
        (
            "id,lower,upper,size\na,0,1,18446744073709551615\n",
            2,
            ProblemCause::TooLarge,
        ),
    ];
    for (text, line, cause) in cases {
        assert_eq!(Problem::read(text), Err(ProblemError { line, cause }), "{text}");
    }
}

#[test]
fn the_picture_shows_every_buffer_and_both_lines() {
    let mut problem = problem("F.1048576");
    problem.buffers[0].id = "<&>".into();
    let packing = problem.pack(None, Budget::steps(0));
    let picture = svg::draw(&problem, &packing, Some(CAPACITY));
    assert_eq!(picture.matches("<title>").count(), problem.buffers.len());
    assert!(picture.contains("&lt;&amp;&gt;") && !picture.contains("<&>"));
    assert!(picture.contains("lower bound</text>") && picture.contains("capacity</text>"));
}
