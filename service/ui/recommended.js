// The settings a prior recommends, by sampler or loss and by preset.

/** Values used where a job leaves them out. ``name`` is the field: "sampler", "loss" or another with recommendations. */
export function recommendedFor(prior, name, type, preset) {
  const recommended = prior?.recommended[name] ?? {};
  const changes = name === "sampler" ? prior?.presets?.[preset]?.[type] : undefined;
  return { ...(type ? recommended[type] : recommended), ...changes };
}

/** The settings of ``chosen`` that differ from what would be used anyway; ``type`` is kept if there is one. */
export function unusual(chosen, prior, name, preset) {
  const usual = recommendedFor(prior, name, chosen.type, preset);
  return Object.fromEntries(Object.entries(chosen).filter(([field, value]) => field === "type" || value !== usual[field]));
}

/** The member of a family that is used where a job names none: the prior's choice for the task, else the schema's. */
export const usualType = (property, prior, name, task) => (name === "sampler" ? prior?.default_samplers?.[task] : undefined) ?? property["x-default-type"];
