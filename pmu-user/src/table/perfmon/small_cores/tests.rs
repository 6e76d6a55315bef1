//! Tests on a sheet made for them, with a column of cores that have everything and one of cores that have
//! less.

use super::{FORMULA_BYTES_MAX, column, read};
use crate::table::{
    model::{KNOWN, Model, write},
    perfmon::metric::import,
};

const TEXT: &str = "\u{feff}TMA,Version,9,,,,,,,,
.,,,,,,,,,,
Key,Level1,Level2,Level3,ALL,LESS,Locate-with,Count Domain,Metric Description,Metric Group,Threshold
FE,Starved,,,LOST.FE / #SLOTS,LOST.FE / #SLOTS,,Slots,\"In quotes, and not taken\",,>0.20
FE,,Late,,LOST.LATE / #SLOTS,#NA,DONE.ANY;NO.SUCH,Slots,,,>0.15 & P
FE,,,Late_Code,LOST.CODE / #SLOTS,LOST.CODE / #SLOTS,,Slots,,,>0.05 & P
BE,Stalled,,,LOST.BE / #SLOTS,LOST.BE / #SLOTS,,Slots,,,>0.10
BE,,Full,,LOST.FULL / #SLOTS,LOST.FULL / #SLOTS,,Slots,,,>0.10 & P
BE,,Other,,( ( LOST.BE / #SLOTS ) - Full ),( ( LOST.BE / #SLOTS ) - Full ),,Slots,,,>0.20 & P
.,metrics,,,,,,,,,
Info.Core,CPI,,,#CLKS / DONE.ANY,#CLKS / DONE.ANY,,,,,
Info.Cache ,%_Loads_Missed,,,100 * LOADS.MISSED:USER / LOADS.ALL,,,Loads,,Cache;Loads,
Info.System,MUX,,,CLOCKS.P / #CLKS,CLOCKS.P / #CLKS,,,,,( > 1.1 | < 0.9 )
Info.System,Utilization,,,CLOCKS.REF / TSC,CLOCKS.REF / TSC,,,,,
Info.System,Rate,,,\"max( DONE.ANY, 1 ) / #Seconds\",\"max( DONE.ANY, 1 ) / #Seconds\",,,,,
Aux,#CLKS,,,CLOCKS.ALL,CLOCKS.ALL,,Cycles,,,
Aux,#SLOTS,,,#Width * #CLKS,#Width * #CLKS,,Cycles,,,
Aux,#Width,,,6,4,,Constant,,,
Aux,#Seconds,,,DurationTimeInMilliSeconds / 1000,DurationTimeInMilliSeconds / 1000,,Count,,,
Aux,DurationTimeInMilliSeconds,,,,,,SystemParameter,,,
";

/// Returns the lines of metrics in the table of a column, for cores that have every event but these.
fn lines(text: &str, column: &str, lacking: &[&str]) -> Vec<String> {
    let has = |event: &str| event.contains('.') && event != "NO.SUCH" && !lacking.contains(&event);
    let (version, metrics) = read(text, column, &has).unwrap();
    assert_eq!(version, "E-core TMA 9");
    let mut model = Model::default();
    import(&mut model, &metrics).unwrap();
    let table = write(&model);
    let metrics = table.lines().filter_map(|line| line.strip_prefix("metric\t"));
    metrics.map(|line| line.replace('\t', " ; ")).collect()
}

/// Returns the line of a metric; `None` if the cores lack it.
fn line(column: &str, lacking: &[&str], name: &str) -> Option<String> {
    let start = format!("{name} ; ");
    let all = lines(TEXT, column, lacking);
    all.iter().find_map(|line| line.strip_prefix(&start)).map(str::to_owned)
}

#[test]
fn a_node_stands_below_the_node_a_level_above_and_is_flagged_with_it() {
    let node = |name: &str| line("ALL", &[], name).unwrap();
    assert_eq!(
        node("Starved"),
        "1 ; - ; % ; TMA ; Slots ; - ; 100 ; LOST.FE / (6 * CLOCKS.ALL) ; @Starved > 20 ; -"
    );
    assert_eq!(
        node("Late"),
        "2 ; Starved ; % ; TMA ; Slots ; - ; 100 ; LOST.LATE / (6 * CLOCKS.ALL) ; @Late > 15 & @Starved > 20 ; DONE.ANY"
    );
    assert_eq!(
        node("Late_Code"),
        "3 ; Late ; % ; TMA ; Slots ; - ; 100 ; LOST.CODE / (6 * CLOCKS.ALL) ; @Late_Code > 5 & @Late > 15 & @Starved > 20 ; -"
    );
    assert!(node("Stalled").starts_with("1 ; - ; "), "another branch");
}

#[test]
fn a_formula_may_name_a_node_above() {
    assert_eq!(
        line("LESS", &[], "Other").unwrap(),
        "2 ; Stalled ; % ; TMA ; Slots ; - ; 100 ; LOST.BE / (4 * CLOCKS.ALL) - @Full ; @Other > 20 & @Stalled > 10 ; -"
    );
}

#[test]
fn what_is_beside_the_tree_has_the_name_of_its_key_and_the_unit_of_its_own() {
    let metric = |name: &str| line("ALL", &[], name).unwrap();
    assert_eq!(
        metric("Info_Core_CPI"),
        "1 ; - ; per instruction ; TMA ; - ; - ; 1 ; CLOCKS.ALL / DONE.ANY ; - ; -"
    );
    assert_eq!(
        metric("Info_Cache_Loads_Missed"),
        "1 ; - ; % ; TMA ; Loads ; Cache Loads ; 1 ; 100 * LOADS.MISSED:USER / LOADS.ALL ; - ; -"
    );
    assert_eq!(
        metric("Info_System_MUX"),
        "1 ; - ; - ; TMA ; - ; - ; 1 ; CLOCKS.P / CLOCKS.ALL ; @Info_System_MUX > 1.1 | @Info_System_MUX < 0.9 ; -"
    );
}

#[test]
fn time_is_a_constant() {
    let metric = |name: &str| line("ALL", &[], name).unwrap();
    assert_eq!(
        metric("Info_System_Utilization"),
        "1 ; - ; - ; TMA ; - ; - ; 1 ; CLOCKS.REF / #TSC_TICKS ; - ; -"
    );
    assert_eq!(
        metric("Info_System_Rate"),
        "1 ; - ; - ; TMA ; - ; - ; 1 ; max(DONE.ANY, 1) / (#DURATIONTIMEINMILLISECONDS / 1000) ; - ; -"
    );
}

#[test]
fn cycles_and_slots_are_metrics_as_of_large_cores() {
    let all = lines(TEXT, "LESS", &[]);
    assert_eq!(
        all[9..],
        [
            "Info_Thread_CLKS ; 1 ; - ; - ; TMA ; Count ; - ; 1 ; CLOCKS.ALL ; - ; -",
            "Info_Thread_SLOTS ; 1 ; - ; - ; TMA ; Count ; - ; 1 ; 4 * CLOCKS.ALL ; - ; -",
        ]
    );
}

#[test]
fn what_a_core_has_not_is_left_out_with_what_names_it() {
    for name in ["Late", "Info_Cache_Loads_Missed"] {
        assert_eq!(line("LESS", &[], name), None, "{name}: not in its column");
    }
    let code = line("LESS", &[], "Late_Code").unwrap();
    assert!(code.starts_with("3 ; Starved ; "), "the nearest that there is");
    let lacking = ["LOST.FULL"];
    assert_eq!(line("ALL", &lacking, "Full"), None, "it has no such event");
    assert_eq!(line("ALL", &lacking, "Other"), None, "its formula names that metric");
    assert_eq!(lines(TEXT, "ALL", &lacking).len(), lines(TEXT, "ALL", &[]).len() - 2);
}

#[test]
fn what_names_itself_or_grows_without_end_is_left_out() {
    let circle = TEXT.replace("Aux,#Width,,,6", "Aux,#Width,,,#SLOTS");
    assert_eq!(lines(&circle, "ALL", &[]).len(), 6, "all but those of slots");
    let long = vec!["LOADS.ALL"; FORMULA_BYTES_MAX / 8].join(" + ");
    let long = TEXT.replace("LOST.FE / #SLOTS,LOST.FE", &format!("{long},LOST.FE"));
    assert!(!lines(&long, "ALL", &[])[0].starts_with("Starved"));
}

#[test]
fn a_sheet_without_its_columns_is_refused() {
    let error = |text: &str, column: &str| read(text, column, &|_| true).unwrap_err();
    assert_eq!(error("a,b\n", "ALL"), "no row begins with `Key`");
    assert_eq!(error(TEXT, "NONE"), "it has no column `NONE`");
}

#[test]
fn every_table_of_small_cores_has_a_column() {
    for (name, _) in KNOWN.iter().filter(|(name, _)| name.contains('/')) {
        assert_eq!(column(name).is_some(), !name.ends_with("/cpu_core"), "{name}");
    }
}
