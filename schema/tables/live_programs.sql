-- One row per compiled program that was loaded when a memory profile was taken. Key: run_name, profile_name, program_ordinal.
CREATE TABLE live_programs (
  run_name VARCHAR NOT NULL,
  profile_name VARCHAR NOT NULL,
  program_ordinal BIGINT NOT NULL,
  program_name VARCHAR NOT NULL,
  is_failed BOOLEAN NOT NULL,
  argument_bytes BIGINT,
  output_bytes BIGINT,
  alias_bytes BIGINT,
  temp_bytes BIGINT,
  code_bytes BIGINT
);
COMMENT ON TABLE live_programs IS
  'One row per compiled program that was loaded when bufdb.watch took a memory profile: what XLA says it needs on each device. Key: run_name, profile_name, program_ordinal.';
COMMENT ON COLUMN live_programs.run_name IS
  'The run; refers to runs.run_name.';
COMMENT ON COLUMN live_programs.profile_name IS
  'The profile; refers to live_profiles.profile_name of the run.';
COMMENT ON COLUMN live_programs.program_ordinal IS
  'Place in JAX''s list of loaded programs, from 0.';
COMMENT ON COLUMN live_programs.program_name IS
  'Name of the module, such as jit_step.';
COMMENT ON COLUMN live_programs.is_failed IS
  'Whether it is the one whose call failed.';
COMMENT ON COLUMN live_programs.argument_bytes IS
  'Arguments, donated ones included [bytes]; NULL if XLA does not say.';
COMMENT ON COLUMN live_programs.output_bytes IS
  'Outputs, aliased ones included [bytes]; NULL if XLA does not say.';
COMMENT ON COLUMN live_programs.alias_bytes IS
  'Outputs in the memory of donated arguments [bytes]; NULL if XLA does not say.';
COMMENT ON COLUMN live_programs.temp_bytes IS
  'Temporaries [bytes]; NULL if XLA does not say.';
COMMENT ON COLUMN live_programs.code_bytes IS
  'Code [bytes]; NULL if XLA does not say.';
