//! The page of operators says what the importer knows. `ANSC_BLESS=1` writes it anew.

use std::path::Path;

#[test]
fn the_page_of_operators_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/src/operators.md");
    let page = ansc::verbs::operators::page();
    if std::env::var_os("ANSC_BLESS").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    assert_eq!(std::fs::read_to_string(&path).unwrap(), page, "`ANSC_BLESS=1` writes it anew");
}
