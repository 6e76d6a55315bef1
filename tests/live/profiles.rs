//! Profiles that `pmbpf serve` pushes: the owners of samples, their number, and the names of functions.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    collector::Collector,
    protobuf::Message,
    serve::Server,
    support::{Cgroup, wait_until},
    workloads::workload,
};

/// Samples of all profiles by resource name, and by the function hit; the functions in stacks; and ids.
#[derive(Default)]
struct Profiles {
    samples: BTreeMap<String, u64>,
    innermost: BTreeMap<(String, String), u64>,
    ids: BTreeSet<Vec<u8>>,
    functions: BTreeSet<String>,
}

impl Profiles {
    fn of(collector: &Collector) -> Self {
        let mut all = Self::default();
        for (head, body) in &*collector.requests.lock().unwrap() {
            assert!(head.starts_with("POST /v1development/profiles HTTP/1.1"), "{head}");
            assert!(head.contains("content-type: application/x-protobuf"), "{head}");
            all.add(&Message::read(body));
        }
        all
    }

    fn add(&mut self, request: &Message) {
        let dictionary = request.messages(2).remove(0);
        let texts = dictionary.texts(5);
        let [locations, functions, stacks] = [2, 3, 7].map(|table| dictionary.messages(table));
        let place = |at: u64| usize::try_from(at).unwrap();
        let name = |location: u64| {
            let line = locations[place(location)].messages(3).into_iter().next()?;
            Some(texts[place(functions[place(line.number(1))].number(1))].clone())
        };
        for of in request.messages(1) {
            let attributes = of.messages(1).remove(0).messages(1);
            let service = attributes.iter().find(|pair| pair.texts(1)[0] == "service.name").unwrap();
            let service = service.messages(2).remove(0).texts(1).remove(0);
            for profile in of.messages(2).iter().flat_map(|scope| scope.messages(2)) {
                assert!(self.ids.insert(profile.one(7)), "a profile came twice");
                for sample in profile.messages(2) {
                    let frames = stacks[place(sample.number(1))].numbers(1);
                    let count: u64 = sample.numbers(4).iter().sum();
                    *self.samples.entry(service.clone()).or_default() += count;
                    if let Some(function) = name(frames[0]) {
                        *self.innermost.entry((service.clone(), function)).or_default() += count;
                    }
                    self.functions.extend(frames.iter().filter_map(|&at| name(at)));
                }
            }
        }
    }
}

#[test]
fn profiles_have_every_sample_of_a_cgroup_by_function_and_no_samples_twice() {
    let (above, spin) = (Cgroup::new("profiled"), workload("spin", &["-g"]));
    let web = above.below("web");
    let collector = Collector::start();
    let url = format!("http://{}", collector.address);
    let options = ["--otlp-profiles", &url, "--otlp-interval", "2s", "--profile-frequency", "199"];
    let server = Server::start(&[&["--cgroup", &above.path][..], &options].concat());
    // The process begins when its cgroup is already counted.
    let mut running = web.spawn(&format!("{spin} 6"));
    running.wait();
    // Counts of a target before it had its own series are in the series of all others.
    let scraped = server.settled(|_| ());
    let counted: f64 = scraped
        .iter()
        .filter(|(key, _)| key.starts_with("pmbpf_samples_total{"))
        .map(|(_, count)| count)
        .sum();
    assert_eq!(server.end(), Some(0));
    let pushed = || Profiles::of(&collector).samples.values().sum::<u64>() as f64;
    wait_until("the last profile came", || pushed() >= counted);
    let (profiles, target) = (Profiles::of(&collector), format!("path:{}", web.path));
    assert!(collector.requests.lock().unwrap().len() >= 3, "one every 2 s");
    // Counted samples equal pushed samples.
    assert!(counted > 300.0, "{counted}");
    assert_eq!(pushed(), counted);
    assert_eq!(profiles.samples.keys().collect::<Vec<_>>(), [&target]);
    let leaf = profiles.innermost.get(&(target.clone(), "hot_leaf".to_owned())).copied().unwrap_or(0);
    // Names are looked up periodically. At first there are none.
    assert!(leaf as f64 > counted / 3.0, "{leaf} of {counted}: {:?}", profiles.innermost);
    assert!(profiles.functions.contains("main"), "stacks go to where it began: {:?}", profiles.functions);
}
