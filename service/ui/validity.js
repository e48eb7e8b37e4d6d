// What is wrong in a form, shown at the fields: values outside their ranges, and errors that the service reports.

/** Shows ``message`` at a control, or takes it away. */
export function mark(inputElement, message) {
  inputElement.setAttribute("aria-invalid", String(Boolean(message)));
  const error = document.getElementById(`${inputElement.id}-error`);
  if (error) error.textContent = message;
}

const refused = (root) => [...root.querySelectorAll("input, select, textarea")].filter((candidate) => !candidate.validity.valid && !candidate.closest("[hidden]"));

/** Whether every control's own range admits its value; texts that are still empty count as valid. */
export const isValid = (root) => refused(root).every(({ validity }) => validity.valueMissing);

/** Marks every control that its own range refuses; true when there is none. */
export function validate(root) {
  const wrong = refused(root);
  for (const candidate of wrong) mark(candidate, candidate.validationMessage);
  reveal(wrong[0]);
  return wrong.length === 0;
}

/** Puts a problem's field errors at the fields they name. */
export function markErrors(root, errors) {
  const marked = errors.map(({ pointer, detail }) => {
    const target = root.querySelector(`[data-pointer="${CSS.escape(pointer)}"]`);
    if (target) mark(target, detail);
    return target;
  });
  reveal(marked.find(Boolean));
}

function reveal(inputElement) {
  const folded = inputElement?.closest("details");
  if (folded) folded.open = true;
  inputElement?.focus();
}
