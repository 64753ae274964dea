import { accountLink, code, heading, hint, link, note } from "../dom.js";
import { hrefTo, placeAt, placeOf } from "../location.js";
import { isSecret, SECRET_SEARCHED, viewRequests } from "../requests.js";
import { table } from "../table.js";

/** A result that is alone is opened at once. @param {Context} context @returns {Promise<Content | URL>} */
export async function showSearch({ place, again }) {
  const { q, found } = viewRequests.search(place);
  if (isSecret(q)) {
    // It came by a link. It stays neither in the address nor in the history of this tab.
    history.replaceState(null, "", hrefTo(["search"]));
    return [heading("Search", again), note(SECRET_SEARCHED)];
  }
  if (!found)
    return [
      heading("Search"),
      hint("The field above takes an id, or words of a label, of metadata or of a reference."),
    ];
  const { data, complete } = await found;
  const [only] = data;
  if (only && data.length === 1 && complete) return placeAt(placeOf(only));
  return [
    heading(["Search for ", code(q)], again),
    table(
      "Found",
      [
        { title: "What", of: (one) => one.kind },
        {
          title: "Id",
          header: true,
          wrap: true,
          cell: (one) => link(placeOf(one), one.id),
          of: (one) => one.id,
        },
        { title: "Label", wrap: true, of: (one) => one.label },
        { title: "Metadata", wrap: true, of: (one) => one.metadata },
        { title: "Account", wrap: true, of: (one) => one.account_id, as: (id) => accountLink(id) },
      ],
      data,
      complete
        ? `No id is ${q}, and no label, metadata or reference has words that begin with it.`
        : "Nothing was found.",
    ),
    !complete &&
      note([
        "There may be more than these: say more of what you look for. All accounts whose label begins with it are in the ",
        link(hrefTo(["accounts"], { label: q }), "list of accounts"),
        ".",
      ]),
    hint(
      "Ids are whole, those of accounts also their beginning. In labels of accounts and keys, in metadata and in references a word is found by its beginning, and by the words behind it. Tokens are not found by their labels: they stand under Tokens.",
    ),
  ];
}
