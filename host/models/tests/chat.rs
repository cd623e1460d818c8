//! Chat templates: the real model's, and what other models' templates ask of the engine.

mod support;

use hexloom_models::ModelError;
use hexloom_models::chat::{ChatMessage, ChatTemplate};
use hexloom_models::gguf::Gguf;
use hexloom_models::tokenizer::Tokenizer;
use support::{TempFile, model, tokenizer_file};

fn chat() -> [ChatMessage; 2] {
    [
        ChatMessage::new("system", "Be brief."),
        ChatMessage::new("user", " hi "),
    ]
}

fn render(source: &str) -> Result<String, ModelError> {
    ChatTemplate::new(source, "<s>", "</s>")?.render(&chat(), true)
}

#[test]
fn the_real_model() {
    let Some(path) = model("chat::the_real_model") else {
        return;
    };
    let gguf = Gguf::open(path).unwrap();
    let tokenizer = Tokenizer::from_gguf(&gguf).unwrap();
    let template = ChatTemplate::from_gguf(&gguf, &tokenizer).unwrap();
    let prompt = template.render(&chat(), true).unwrap();
    assert_eq!(
        prompt,
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n hi <|im_end|>\n<|im_start|>assistant\n"
    );
    let prompt = template.render(&chat()[1..], false).unwrap();
    assert_eq!(
        prompt,
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n\
         <|im_start|>user\n hi <|im_end|>\n"
    );
}

#[test]
fn a_template_sees_the_tokens_of_its_file() {
    let file = tokenizer_file("gpt-2").str(
        "tokenizer.chat_template",
        "{{ bos_token }}{{ messages[1].content }}{{ eos_token }}",
    );
    let file = TempFile::new(&file.finish());
    let gguf = Gguf::open(file.path()).unwrap();
    let tokenizer = Tokenizer::from_gguf(&gguf).unwrap();
    let template = ChatTemplate::from_gguf(&gguf, &tokenizer).unwrap();
    assert_eq!(template.render(&chat(), true).unwrap(), "<s> hi </s>");
}

#[test]
fn blocks_are_trimmed_and_python_methods_work() {
    let source = "
{%- for message in messages %}
    {% if message['role'] == 'user' %}
{{ bos_token + message['content'].strip() }}
    {% else %}
    {% continue %}
    {% endif %}
{% endfor %}
{% if add_generation_prompt %}
>
{%- endif %}";
    assert_eq!(render(source).unwrap(), "<s>hi\n>");
    assert_eq!(
        render("{% if tools is defined %}x{% endif %}{{ messages[0].content.split(' ')[0] }}").unwrap(),
        "Be"
    );
    assert_eq!(
        render("{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}")
            .unwrap(),
        "2"
    );
}

#[test]
fn refusals_are_errors() {
    let message = render("{{ raise_exception('Roles must alternate') }}")
        .unwrap_err()
        .to_string();
    assert!(message.starts_with("the model's chat template failed: "), "{message}");
    assert!(message.contains("Roles must alternate"), "{message}");
    assert!(matches!(render("{% if %}"), Err(ModelError::ChatTemplate { .. })));
    let endless = "{% for a in range(9999) %}{% for b in range(9999) %}{% for c in range(9999) %}{% endfor %}{% endfor %}{% endfor %}";
    assert!(matches!(render(endless), Err(ModelError::ChatTemplate { .. })));
}

/// The file is anybody's: no depth of it may take a thread's stack, wherever the engine recurses without a limit.
#[test]
fn templates_that_nest_or_call_themselves_end() {
    const LEVELS: usize = 80_000;
    const LISTS: usize = 25;
    let expression = |open: &str, close: &str| format!("{{{{ {}1{} }}}}", open.repeat(LEVELS), close.repeat(LEVELS));
    let refused = [
        "{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}".to_owned(),
        "{% macro f() %}{% call f() %}{{ f() }}{% endcall %}{% endmacro %}{{ f() }}".to_owned(),
        "{% for x in [[1]] recursive %}{{ loop([[1]]) }}{% endfor %}".to_owned(),
        "{% if true %}".repeat(15_000),
        expression("(", ")"),
        expression("[", "]"),
        expression("{1:", "}")[..240_000].to_owned(),
        "x".repeat((256 << 10) + 1),
    ];
    for source in refused {
        let result = render(&source);
        let start: String = source.chars().take(60).collect();
        assert!(
            matches!(result, Err(ModelError::ChatTemplate { .. })),
            "{start}: {result:?}"
        );
    }
    let signs = |sign: &str| render(&format!("{{{{ {}1 }}}}", sign.repeat(250_000 / sign.len())));
    assert_eq!(signs("-").unwrap(), "1");
    assert_eq!(signs("not ").unwrap(), "True");
    assert_eq!(signs("1**").unwrap(), "1");
    // Values nest by steps that the text does not show: nearly as many as a template may take.
    let lists = |steps: usize| {
        let (open, close) = ("[".repeat(LISTS), "]".repeat(LISTS));
        render(&format!(
            "{{% set ns = namespace(x=[]) %}}{{% for i in range({steps}) %}}\
             {{% set ns.x = {open}ns.x{close} %}}{{% endfor %}}{{{{ ns.x }}}}"
        ))
    };
    assert_eq!(lists(7000).unwrap().len(), 2 * (7000 * LISTS + 1));
    assert!(matches!(lists(20_000), Err(ModelError::ChatTemplate { .. })));
}

#[test]
fn a_model_without_a_template_says_so() {
    let file = TempFile::new(&tokenizer_file("gpt-2").finish());
    let gguf = Gguf::open(file.path()).unwrap();
    let tokenizer = Tokenizer::from_gguf(&gguf).unwrap();
    let message = ChatTemplate::from_gguf(&gguf, &tokenizer).unwrap_err().to_string();
    assert!(message.starts_with(&file.path().display().to_string()) && message.contains("tokenizer.chat_template"));
}
