//! Order of forward declarations in an object's BTF (Documentation/bpf/btf.rst). LLVM writes them last, in
//! the order of addresses in the compiler's memory, so two builds of the same source differ. Sorted by name,
//! they are the same.

use std::ops::Range;

/// Kinds of types (include/uapi/linux/btf.h).
const KIND_INT: u32 = 1;
const KIND_ARRAY: u32 = 3;
const KIND_STRUCT: u32 = 4;
const KIND_UNION: u32 = 5;
const KIND_ENUM: u32 = 6;
const KIND_FWD: u32 = 7;
const KIND_FUNC_PROTO: u32 = 13;
const KIND_VAR: u32 = 14;
const KIND_DATASEC: u32 = 15;
const KIND_FLOAT: u32 = 16;
const KIND_DECL_TAG: u32 = 17;
const KIND_ENUM64: u32 = 19;

/// Bytes of a type without its tail (struct btf_type).
const TYPE_BYTES: usize = 12;

/// Section `.BTF` in the byte order of this machine, with types of the kinds above or types that refer to one
/// type.
struct Section<'a> {
    data: &'a mut [u8],
    /// Ranges of the types and the strings.
    types: Range<usize>,
    strings: Range<usize>,
}

/// Offsets of the words of a section that a new order changes.
#[derive(Default)]
struct Words {
    /// Words that refer to types by id.
    ids: Vec<usize>,
    /// Names of all types, members and values except those of the last forward declarations.
    names: Vec<u32>,
    /// Offsets of the last forward declarations, which are consecutive, and the id of the first.
    forward: Vec<usize>,
    first_id: u32,
}

/// Sorts the forward declarations at the end of a section `.BTF` by name. Returns `None` and changes nothing
/// if the section is truncated, has an unknown kind, or is of the other byte order.
pub(crate) fn sort(data: &mut [u8]) -> Option<()> {
    reorder(data, |names| {
        let mut order: Vec<usize> = (0..names.len()).collect();
        order.sort_by(|one, other| names[*one].cmp(&names[*other]));
        order
    })
}

/// Puts the declarations in the order that `order` returns for their names: indices of the first, the second
/// and so on.
fn reorder(data: &mut [u8], order: impl Fn(&[Vec<u8>]) -> Vec<usize>) -> Option<()> {
    let mut section = Section::of(data)?;
    let Words { ids, names, forward, first_id } = section.words()?;
    let entries: Vec<(u32, u32)> =
        forward.iter().map(|at| Some((section.word(*at)?, section.word(at + 4)?))).collect::<Option<_>>()?;
    let texts: Vec<Vec<u8>> =
        entries.iter().map(|(name, _)| section.name(*name).map(<[u8]>::to_vec)).collect::<Option<_>>()?;
    let order = order(&texts);
    let offsets = section.relaid(&entries, &texts, &order, names.iter().copied().max().unwrap_or(0));
    let mut new_ids = vec![0; order.len()];
    for (to, from) in order.iter().enumerate() {
        section.put(forward[to], offsets[*from]);
        section.put(forward[to] + 4, entries[*from].1);
        new_ids[*from] = first_id + to as u32;
    }
    for at in ids {
        let id = section.word(at)?;
        if let Some(new) = id.checked_sub(first_id).and_then(|index| new_ids.get(index as usize)) {
            section.put(at, *new);
        }
    }
    Some(())
}

impl<'a> Section<'a> {
    fn of(data: &'a mut [u8]) -> Option<Self> {
        let mut section = Section { data, types: 0..0, strings: 0..0 };
        let is_ours = section.data.get(..2)? == 0xeb9f_u16.to_ne_bytes();
        let [header, types_at, types, strings_at, strings] =
            [4, 8, 12, 16, 20].map(|at| section.word(at).map_or(usize::MAX, |word| word as usize));
        let within = |at: usize, bytes: usize| {
            let begin = header.checked_add(at)?;
            let range = begin..begin.checked_add(bytes)?;
            (range.end <= section.data.len()).then_some(range)
        };
        (section.types, section.strings) = (within(types_at, types)?, within(strings_at, strings)?);
        is_ours.then_some(section)
    }

    fn word(&self, at: usize) -> Option<u32> {
        Some(u32::from_ne_bytes(self.data.get(at..at + 4)?.try_into().ok()?))
    }

    fn put(&mut self, at: usize, word: u32) {
        self.data[at..at + 4].copy_from_slice(&word.to_ne_bytes());
    }

    fn name(&self, offset: u32) -> Option<&[u8]> {
        self.data.get(self.strings.clone())?.get(offset as usize..)?.split(|byte| *byte == 0).next()
    }

    /// Walks the types of the section.
    fn words(&self) -> Option<Words> {
        let mut words = Words::default();
        let (mut at, mut id) = (self.types.start, 1);
        while at < self.types.end {
            let (name, info) = (self.word(at)?, self.word(at + 4)?);
            let (kind, count) = ((info >> 24) & 0x1f, (info & 0xffff) as usize);
            if kind == KIND_FWD {
                if words.forward.is_empty() {
                    words.first_id = id;
                }
                words.forward.push(at);
            } else {
                // Only the declarations at the end count.
                for at in words.forward.drain(..) {
                    words.names.push(self.word(at)?);
                }
                words.names.push(name);
            }
            at = self.follow(at, (kind, count), &mut words)?;
            id += 1;
        }
        (at == self.types.end).then_some(words)
    }

    /// Collects the words of a type that refer to types, and the names in its tail. Returns the offset of the
    /// next type.
    fn follow(&self, at: usize, (kind, count): (u32, usize), words: &mut Words) -> Option<usize> {
        let then = at + TYPE_BYTES;
        let has_type = !matches!(
            kind,
            KIND_INT
                | KIND_ARRAY
                | KIND_STRUCT
                | KIND_UNION
                | KIND_ENUM
                | KIND_FWD
                | KIND_DATASEC
                | KIND_FLOAT
                | KIND_ENUM64
        );
        words.ids.extend(has_type.then_some(at + 8));
        // Bytes of each entry in the tail, and the offsets of a name and a type in it.
        let (each, name, id) = match kind {
            KIND_STRUCT | KIND_UNION => (12, Some(0), Some(4)),
            KIND_ENUM => (8, Some(0), None),
            KIND_ENUM64 => (12, Some(0), None),
            KIND_FUNC_PROTO => (8, Some(0), Some(4)),
            KIND_DATASEC => (12, None, Some(0)),
            KIND_INT | KIND_VAR | KIND_DECL_TAG => return Some(then + 4),
            KIND_ARRAY => {
                words.ids.extend([then, then + 4]);
                return Some(then + 12);
            }
            1..=KIND_ENUM64 => return Some(then),
            _ => return None,
        };
        for begin in (0..count).map(|index| then + index * each) {
            words.ids.extend(id.map(|id| begin + id));
            if let Some(name) = name {
                words.names.push(self.word(begin + name)?);
            }
        }
        Some(then + count * each)
    }

    /// Returns the offsets of the names, by index of the entry. The names that end the strings, behind every
    /// other name, are laid out again in this order.
    fn relaid(
        &mut self,
        entries: &[(u32, u32)],
        texts: &[Vec<u8>],
        order: &[usize],
        last_other: u32,
    ) -> Vec<u32> {
        let mut offsets: Vec<u32> = entries.iter().map(|(name, _)| *name).collect();
        let mut from_last: Vec<usize> = (0..entries.len()).collect();
        from_last.sort_by_key(|index| std::cmp::Reverse(offsets[*index]));
        let mut begin = self.strings.len() as u32;
        let mut moved = Vec::new();
        for index in from_last {
            if offsets[index] <= last_other || offsets[index] + texts[index].len() as u32 + 1 != begin {
                break;
            }
            begin = offsets[index];
            moved.push(index);
        }
        for index in order.iter().filter(|index| moved.contains(index)) {
            let at = self.strings.start + begin as usize;
            let text = &texts[*index];
            self.data[at..at + text.len()].copy_from_slice(text);
            self.data[at + text.len()] = 0;
            offsets[*index] = begin;
            begin += text.len() as u32 + 1;
        }
        offsets
    }
}

#[cfg(test)]
mod tests {
    use object::{Object as _, ObjectSection as _};

    use super::{Section, reorder, sort};
    use crate::bpf::built::{BY_ADDRESS, BY_TYPE, Built, IO_BY_ADDRESS, IO_BY_TYPE};

    /// Returns the types of a built object, as its loader reads them.
    fn types(object: Built) -> Vec<u8> {
        let bytes = object.bytes();
        object::File::parse(&*bytes).unwrap().section_by_name(".BTF").unwrap().data().unwrap().to_vec()
    }

    /// Returns every name and, by name, each word that refers to a forward declaration, in the order of the
    /// section.
    fn meaning(data: &mut [u8]) -> Vec<String> {
        let section = Section::of(data).unwrap();
        let words = section.words().unwrap();
        let name = |offset: u32| section.name(offset).unwrap().escape_ascii().to_string();
        let forward: Vec<String> = words.forward.iter().map(|at| name(section.word(*at).unwrap())).collect();
        let refers = words.ids.iter().filter_map(|at| {
            let index = section.word(*at).unwrap().checked_sub(words.first_id)?;
            Some(format!("{at} is of {}", forward.get(index as usize)?))
        });
        words.names.iter().map(|offset| name(*offset)).chain(refers).collect()
    }

    #[test]
    fn forward_declarations_in_any_order_become_the_same_bytes() {
        let mut changed = 0;
        for object in [BY_TYPE, BY_ADDRESS, IO_BY_TYPE, IO_BY_ADDRESS] {
            let mut first = types(object);
            let mut other = first.clone();
            reorder(&mut other, |names| (0..names.len()).rev().collect()).unwrap();
            changed += u32::from(first != other);
            assert_eq!(meaning(&mut first), meaning(&mut other));
            sort(&mut other).unwrap();
            // The build has sorted it.
            assert_eq!(first, other);
        }
        assert!(changed > 0, "no object has two forward declarations");
    }

    #[test]
    fn sections_that_are_cut_off_or_of_an_unknown_kind_stay_as_they_are() {
        let whole = types(BY_TYPE);
        for bytes in [0, 1, 23, 24, whole.len() / 2, whole.len() - 1] {
            let mut cut = whole[..bytes].to_vec();
            assert!(sort(&mut cut).is_none(), "{bytes} bytes");
            assert_eq!(cut, whole[..bytes]);
        }
        let mut unknown = whole.clone();
        let first = Section::of(&mut unknown).unwrap().types.start;
        unknown[first + 4..first + 8].copy_from_slice(&(0x1f_u32 << 24).to_ne_bytes());
        assert!(sort(&mut unknown).is_none());
    }
}
